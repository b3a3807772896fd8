package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Node is the part of a Node that gpu-node reads.
type Node struct {
	Metadata NodeMetadata `json:"metadata"`
	Status   Resources    `json:"status"`
}

// NodeMetadata are the version, the labels and the annotations of a Node.
type NodeMetadata struct {
	// ResourceVersion is where AwaitNode continues.
	ResourceVersion string `json:"resourceVersion"`

	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Resources are the resources in the status of a Node.
type Resources struct {
	// Capacity counts what is advertised, unhealthy devices included.
	Capacity map[string]resource.Quantity `json:"capacity"`
	// Allocatable counts what pods can be given.
	Allocatable map[string]resource.Quantity `json:"allocatable"`
}

// NodeChanges are changes of a Node's labels and annotations; nil removes a key.
type NodeChanges struct {
	Labels      map[string]*string `json:"labels,omitempty"`
	Annotations map[string]*string `json:"annotations,omitempty"`
	// ResourceVersion is the version of the Node that the changes were made for: if the Node has been written
	// since, they are refused (IsConflict). Default "", for any version.
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// IsConflict reports whether a change was refused because another client has written the object first.
func IsConflict(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == http.StatusConflict
}

// Node returns the named Node.
func (c *Client) Node(ctx context.Context, name string) (Node, error) {
	var node Node
	err := c.call(ctx, http.MethodGet, nodePath(name), "", nil, &node)
	if IsNotFound(err) {
		return Node{}, fmt.Errorf("%w: NODE_NAME must come from the field spec.nodeName", err)
	}
	return node, err
}

// Resources returns the resources in the status of the named Node.
func (c *Client) Resources(ctx context.Context, name string) (Resources, error) {
	node, err := c.Node(ctx, name)
	return node.Status, err
}

// PatchNode changes labels and annotations of the named Node, and no other.
func (c *Client) PatchNode(ctx context.Context, name string, changes NodeChanges) error {
	patch := struct {
		Metadata NodeChanges `json:"metadata"`
	}{changes}
	return c.call(ctx, http.MethodPatch, nodePath(name), "application/merge-patch+json", patch, nil)
}

func nodePath(name string) string { return "/api/v1/nodes/" + url.PathEscape(name) }

// ResourcesReader returns a function that reads the resources of the named Node, with a client as InCluster returns. If
// there is none, each call fails: a caller may have other work to do.
func ResourcesReader(serviceAccountDir, name string) func(context.Context) (Resources, error) {
	client, err := InCluster(serviceAccountDir)
	if err != nil {
		return func(context.Context) (Resources, error) { return Resources{}, err }
	}
	return func(ctx context.Context) (Resources, error) { return client.Resources(ctx, name) }
}

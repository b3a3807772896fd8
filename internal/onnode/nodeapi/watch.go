package nodeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// AwaitNode blocks until enough returns true for a state of the named Node after the resourceVersion version. It is a
// watch of one object by its name, like the kubelet's: it costs the API server nothing while the Node does not change,
// and one message when it does. It fails if ctx ends, the Node is deleted, or the API server refuses or ends the
// watch.
func (c *Client) AwaitNode(ctx context.Context, name, version string, enough func(Node) bool) error {
	return c.watch(ctx, "/api/v1/nodes", name, version, func(object json.RawMessage) (bool, error) {
		var node Node
		if err := json.Unmarshal(object, &node); err != nil {
			return false, err
		}
		return enough(node), nil
	})
}

// errDeleted is the error of a watch whose object was deleted.
var errDeleted = errors.New("it was deleted")

// watch calls see with each later state of the object called name in collection, until see returns true or an error.
// It does so with the last state of a deleted object too, before it fails.
func (c *Client) watch(
	ctx context.Context, collection, name, version string, see func(object json.RawMessage) (bool, error),
) error {
	query := url.Values{
		"watch":           {"true"},
		"fieldSelector":   {"metadata.name=" + name},
		"resourceVersion": {version},
	}
	// Without the client's timeout, which is for complete answers; ctx limits this one.
	unbounded := &http.Client{Transport: c.http.Transport}
	response, err := c.send(ctx, unbounded, http.MethodGet, collection+"?"+query.Encode(), "", nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	for events := json.NewDecoder(response.Body); ; {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := events.Decode(&event); err != nil {
			if ctx.Err() != nil {
				// A connection that ctx closes may look like one that the API server has closed.
				err = ctx.Err()
			}
			return fmt.Errorf("the watch of %s/%s ended: %w", collection, name, err)
		}
		done, err := seen(event.Type, event.Object, see)
		if err != nil {
			return fmt.Errorf("the watch of %s/%s ended: %w", collection, name, err)
		}
		if done {
			return nil
		}
	}
}

func seen(eventType string, object json.RawMessage, see func(json.RawMessage) (bool, error)) (bool, error) {
	switch eventType {
	case "ADDED", "MODIFIED":
		return see(object)
	case "DELETED":
		done, err := see(object)
		if err == nil && !done {
			err = errDeleted
		}
		return done, err
	case "ERROR":
		var status struct {
			Message string `json:"message"`
		}
		if err := json.Unmarshal(object, &status); err != nil {
			return false, err
		}
		return false, errors.New(status.Message)
	default:
		return false, nil
	}
}

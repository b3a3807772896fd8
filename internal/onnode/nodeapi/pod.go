package nodeapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
)

// Pod is the part of a Pod that gpu-node writes and reads. The names and meanings are those of the API.
type Pod struct {
	APIVersion string      `json:"apiVersion,omitempty"`
	Kind       string      `json:"kind,omitempty"`
	Metadata   PodMetadata `json:"metadata"`
	Spec       PodSpec     `json:"spec"`
	Status     PodStatus   `json:"status,omitzero"`
}

// PodMetadata is the metadata of a Pod.
type PodMetadata struct {
	Name string `json:"name,omitempty"`
	// UID is set by the API server, and identifies pods that had the same name one after the other.
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// DeletionTimestamp is set by the API server once the pod is being deleted.
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	OwnerReferences   []OwnerReference  `json:"ownerReferences,omitempty"`
}

// OwnerReference names an object together with which this one is deleted.
type OwnerReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// PodSpec is the spec of a Pod.
type PodSpec struct {
	RestartPolicy                 string                 `json:"restartPolicy,omitempty"`
	TerminationGracePeriodSeconds int                    `json:"terminationGracePeriodSeconds,omitempty"`
	ServiceAccountName            string                 `json:"serviceAccountName,omitempty"`
	AutomountServiceAccountToken  bool                   `json:"automountServiceAccountToken"`
	RuntimeClassName              string                 `json:"runtimeClassName,omitempty"`
	PriorityClassName             string                 `json:"priorityClassName,omitempty"`
	NodeName                      string                 `json:"nodeName,omitempty"`
	Affinity                      *Affinity              `json:"affinity,omitempty"`
	Tolerations                   []Toleration           `json:"tolerations,omitempty"`
	ImagePullSecrets              []LocalObjectReference `json:"imagePullSecrets,omitempty"`
	Containers                    []Container            `json:"containers"`
}

// Affinity restricts the nodes of a Pod.
type Affinity struct {
	NodeAffinity NodeAffinity `json:"nodeAffinity"`
}

// NodeAffinity are the nodes that the scheduler may choose.
type NodeAffinity struct {
	Required NodeSelector `json:"requiredDuringSchedulingIgnoredDuringExecution"`
}

// NodeSelector matches a node that matches one of its terms.
type NodeSelector struct {
	Terms []NodeSelectorTerm `json:"nodeSelectorTerms"`
}

// NodeSelectorTerm matches a node that meets all its requirements.
type NodeSelectorTerm struct {
	MatchFields []NodeSelectorRequirement `json:"matchFields,omitempty"`
}

// NodeSelectorRequirement compares a field of a Node; the API supports metadata.name only.
type NodeSelectorRequirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// OnNode returns the affinity to the node with this name. Unlike spec.nodeName it leaves the decision to the
// scheduler, which tracks the node's resources that are assigned.
func OnNode(name string) *Affinity {
	return &Affinity{NodeAffinity{NodeSelector{[]NodeSelectorTerm{{
		MatchFields: []NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{name}}},
	}}}}}
}

// Toleration of taints. The operator Exists without a key tolerates all.
type Toleration struct {
	Operator string `json:"operator"`
}

// LocalObjectReference names an object in the same namespace.
type LocalObjectReference struct {
	Name string `json:"name"`
}

// Container is a container of a Pod.
type Container struct {
	Name                     string             `json:"name"`
	Image                    string             `json:"image"`
	ImagePullPolicy          string             `json:"imagePullPolicy,omitempty"`
	Command                  []string           `json:"command,omitempty"`
	Resources                ContainerResources `json:"resources,omitzero"`
	SecurityContext          *SecurityContext   `json:"securityContext,omitempty"`
	TerminationMessagePolicy string             `json:"terminationMessagePolicy,omitempty"`
}

// ContainerResources are the resources that a container requests.
type ContainerResources struct {
	Limits map[string]string `json:"limits,omitempty"`
}

// SecurityContext is the security context of a container.
type SecurityContext struct {
	AllowPrivilegeEscalation bool           `json:"allowPrivilegeEscalation"`
	ReadOnlyRootFilesystem   bool           `json:"readOnlyRootFilesystem"`
	Capabilities             Capabilities   `json:"capabilities"`
	SeccompProfile           SeccompProfile `json:"seccompProfile"`
}

// Capabilities of a container.
type Capabilities struct {
	Drop []string `json:"drop"`
}

// SeccompProfile filters the system calls of a container.
type SeccompProfile struct {
	Type string `json:"type"`
}

// PodStatus is what the scheduler and the kubelet report about a Pod.
type PodStatus struct {
	Phase             string            `json:"phase,omitempty"`
	Reason            string            `json:"reason,omitempty"`
	Message           string            `json:"message,omitempty"`
	Conditions        []PodCondition    `json:"conditions,omitempty"`
	ContainerStatuses []ContainerStatus `json:"containerStatuses,omitempty"`
}

// PodCondition is one condition of a Pod.
type PodCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Condition returns the condition of this type, and whether there is one.
func (s PodStatus) Condition(conditionType string) (PodCondition, bool) {
	for _, condition := range s.Conditions {
		if condition.Type == conditionType {
			return condition, true
		}
	}
	return PodCondition{}, false
}

// ContainerStatus is the state of a container.
type ContainerStatus struct {
	State ContainerState `json:"state"`
}

// ContainerState has at most one of the two.
type ContainerState struct {
	Waiting    *ContainerWaiting    `json:"waiting,omitempty"`
	Terminated *ContainerTerminated `json:"terminated,omitempty"`
}

// ContainerWaiting is why a container has not started.
type ContainerWaiting struct {
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// ContainerTerminated is how a container ended.
type ContainerTerminated struct {
	ExitCode int    `json:"exitCode"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
}

// IsAlreadyExists reports whether an object was not created because one of that name exists.
func IsAlreadyExists(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == http.StatusConflict && status.Reason == "AlreadyExists"
}

// CreatePod creates the pod in namespace and returns it as stored by the API server.
func (c *Client) CreatePod(ctx context.Context, namespace string, pod Pod) (Pod, error) {
	pod.APIVersion, pod.Kind = "v1", "Pod"
	var created Pod
	err := c.call(ctx, http.MethodPost, podsPath(namespace), "application/json", pod, &created)
	return created, err
}

// Pod returns the named pod.
func (c *Client) Pod(ctx context.Context, namespace, name string) (Pod, error) {
	var pod Pod
	err := c.call(ctx, http.MethodGet, podPath(namespace, name), "", nil, &pod)
	return pod, err
}

// DeletePod deletes the pod that was read, and no later one of its name. It succeeds if the pod is gone.
func (c *Client) DeletePod(ctx context.Context, namespace string, pod Pod) error {
	type preconditions struct {
		UID string `json:"uid"`
	}
	options := struct {
		APIVersion    string        `json:"apiVersion"`
		Kind          string        `json:"kind"`
		Preconditions preconditions `json:"preconditions"`
	}{"v1", "DeleteOptions", preconditions{pod.Metadata.UID}}
	err := c.call(ctx, http.MethodDelete, podPath(namespace, pod.Metadata.Name), "application/json", options, nil)
	if IsNotFound(err) || IsConflict(err) {
		return nil
	}
	return err
}

// AwaitPod calls enough with each later state of the given pod, until it returns true. It fails as AwaitNode does;
// enough gets the last state of a deleted pod too.
func (c *Client) AwaitPod(ctx context.Context, namespace string, pod Pod, enough func(Pod) bool) error {
	see := func(object json.RawMessage) (bool, error) {
		var now Pod
		if err := json.Unmarshal(object, &now); err != nil {
			return false, err
		}
		return enough(now), nil
	}
	return c.watch(ctx, podsPath(namespace), pod.Metadata.Name, pod.Metadata.ResourceVersion, see)
}

// AwaitPodGone blocks until the pod, of which pod may be an earlier state, no longer exists. It fails if ctx ends,
// or the API server refuses or ends the watch.
func (c *Client) AwaitPodGone(ctx context.Context, namespace string, pod Pod) error {
	now, err := c.Pod(ctx, namespace, pod.Metadata.Name)
	switch {
	case IsNotFound(err):
		return nil
	case err != nil:
		return err
	case now.Metadata.UID != pod.Metadata.UID:
		return nil
	}
	err = c.AwaitPod(ctx, namespace, now, func(Pod) bool { return false })
	if errors.Is(err, errDeleted) {
		return nil
	}
	return err
}

func podPath(namespace, name string) string { return podsPath(namespace) + "/" + url.PathEscape(name) }

func podsPath(namespace string) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods"
}

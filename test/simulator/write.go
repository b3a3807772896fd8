package simulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// write updates the API to the node's state. It reports whether the node's own status changed.
func (n *node) write(ctx context.Context, now time.Time) (nodeChanged bool, err error) {
	var failures []error
	for _, p := range n.pods {
		err := n.writePod(ctx, p, now)
		if apierrors.IsNotFound(err) {
			// The watch is about to report it.
			p.removed = true
			continue
		}
		failures = append(failures, err)
	}
	if err := errors.Join(failures...); err != nil {
		return false, err
	}
	if err := errors.Join(
		n.writeDiscovery(ctx), n.writePause(ctx), n.writeEvictions(ctx), n.partition(ctx, now), n.writeFeatures(ctx),
		n.writeHealth(ctx),
	); err != nil {
		return false, err
	}
	return n.writeResources(ctx, now)
}

func (n *node) writePod(ctx context.Context, p *pod, now time.Time) error {
	if p.ending() {
		if p.removed || !reached(now, p.endAt) || p.lingers() {
			return nil
		}
		return n.deletePod(ctx, p)
	}
	if p.complaint != "" {
		if err := n.complain(ctx, p); err != nil {
			return err
		}
		p.complaint = ""
	}
	status := p.status(now, n.ip)
	p.report = time.Time{}
	if p.written != nil && equality.Semantic.DeepEqual(status, p.written) {
		return nil
	}
	if due := p.writtenAt.Add(n.sim.timing.Relist); now.Before(due) {
		p.report = due
		return nil
	}
	if err := n.patchStatus(ctx, p, status); err != nil {
		return err
	}
	p.written, p.writtenAt = status, now
	return nil
}

func (n *node) patchStatus(ctx context.Context, p *pod, status *corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{
		// With the UID the patch cannot apply to a later pod of the same name.
		"metadata": map[string]any{"uid": p.uid},
		"status":   status,
	})
	if err != nil {
		return fmt.Errorf("encode status of pod %s: %w", p.object.Name, err)
	}
	_, err = n.sim.client.CoreV1().Pods(p.object.Namespace).Patch(ctx, p.object.Name,
		types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write status of pod %s/%s: %w", p.object.Namespace, p.object.Name, err)
	}
	return nil
}

// writeEnded reports that the containers of a deleted pod have ended.
func (n *node) writeEnded(ctx context.Context, p *pod) error {
	now := time.Now()
	for _, c := range p.mains {
		if c.phase == running {
			c.terminate(now, exitTerminated, reasonError, "")
		}
	}
	status := p.status(now, n.ip)
	status.Phase = corev1.PodFailed
	return n.patchStatus(ctx, p, status)
}

// deletePod removes a pod that has terminated.
func (n *node) deletePod(ctx context.Context, p *pod) error {
	if len(p.object.Finalizers) > 0 {
		// It stays in the API after its containers have ended.
		if err := n.writeEnded(ctx, p); err != nil {
			return err
		}
	}
	err := n.sim.client.CoreV1().Pods(p.object.Namespace).Delete(ctx, p.object.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64),
		Preconditions:      &metav1.Preconditions{UID: &p.uid},
	})
	if err != nil {
		return fmt.Errorf("remove pod %s/%s: %w", p.object.Namespace, p.object.Name, err)
	}
	p.removed = true
	return nil
}

// complain reports that the pod's sandbox cannot be created.
func (n *node) complain(ctx context.Context, p *pod) error {
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: p.object.Name + ".", Namespace: p.object.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: p.object.Namespace, Name: p.object.Name, UID: p.uid,
		},
		Type: corev1.EventTypeWarning, Reason: "FailedCreatePodSandBox", Message: p.complaint,
		Source:         corev1.EventSource{Component: "kubelet", Host: n.name},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	if _, err := n.sim.client.CoreV1().Events(p.object.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("report sandbox of pod %s/%s: %w", p.object.Namespace, p.object.Name, err)
	}
	return nil
}

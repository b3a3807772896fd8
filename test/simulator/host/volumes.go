package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumes are those of one pod, created when a container first mounts them.
type volumes struct {
	host *Host
	pod  *corev1.Pod
	// fetch creates the files of a volume that come from the API.
	fetch func(volume *corev1.ProjectedVolumeSource, dir string) error
}

func (h *Host) volumes(ctx context.Context, pod *corev1.Pod) volumes {
	return volumes{host: h, pod: pod, fetch: func(volume *corev1.ProjectedVolumeSource, dir string) error {
		return h.project(ctx, pod, volume, dir)
	}}
}

// source returns the path of a volume on this computer.
func (v volumes) source(name string) (string, error) {
	for i := range v.pod.Spec.Volumes {
		volume := &v.pod.Spec.Volumes[i]
		if volume.Name != name {
			continue
		}
		dir := filepath.Join(v.host.podDir(v.pod.UID), "volumes", name)
		var err error
		switch {
		case volume.HostPath != nil:
			dir, err = v.host.ensure(volume.HostPath)
		case volume.EmptyDir != nil:
			err = os.MkdirAll(dir, 0o755)
		case volume.Projected != nil:
			err = v.once(volume.Projected, dir)
		case volume.ConfigMap != nil:
			err = v.once(&corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
				ConfigMap: &corev1.ConfigMapProjection{
					LocalObjectReference: volume.ConfigMap.LocalObjectReference, Items: volume.ConfigMap.Items,
				},
			}}}, dir)
		case volume.DownwardAPI != nil:
			err = v.once(&corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
				DownwardAPI: &corev1.DownwardAPIProjection{Items: volume.DownwardAPI.Items},
			}}}, dir)
		default:
			err = errors.New("its type is not simulated")
		}
		if err != nil {
			return "", fmt.Errorf("mount volume %s of pod %s/%s: %w", name, v.pod.Namespace, v.pod.Name, err)
		}
		return dir, nil
	}
	return "", fmt.Errorf("pod %s/%s has no volume %s", v.pod.Namespace, v.pod.Name, name)
}

// once fetches a volume unless another container of the pod has. A token outlives any test.
func (v volumes) once(volume *corev1.ProjectedVolumeSource, dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temp := dir + ".tmp"
	if err := os.MkdirAll(temp, 0o755); err != nil {
		return err
	}
	if err := v.fetch(volume, temp); err != nil {
		return err
	}
	return os.Rename(temp, dir)
}

// project writes the sources of a projected volume, such as the token volume that the API server adds to each pod
// with a ServiceAccount.
func (h *Host) project(ctx context.Context, pod *corev1.Pod, volume *corev1.ProjectedVolumeSource, dir string) error {
	for i := range volume.Sources {
		source := &volume.Sources[i]
		var err error
		switch {
		case source.ServiceAccountToken != nil:
			err = h.projectToken(ctx, pod, source.ServiceAccountToken, dir)
		case source.ConfigMap != nil:
			err = h.projectConfigMap(ctx, pod.Namespace, source.ConfigMap, dir)
		case source.DownwardAPI != nil:
			err = h.projectFields(pod, source.DownwardAPI, dir)
		default:
			err = errors.New("its source is not simulated")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// projectToken requests a token that is bound to the pod, and therefore names the node too, as a kubelet does.
func (h *Host) projectToken(
	ctx context.Context, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection, dir string,
) error {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	token, err := h.client.CoreV1().ServiceAccounts(pod.Namespace).
		CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("request a token of service account %s: %w", pod.Spec.ServiceAccountName, err)
	}
	return replace(filepath.Join(dir, source.Path), token.Status.Token, 0o600)
}

func (h *Host) projectConfigMap(
	ctx context.Context, namespace string, source *corev1.ConfigMapProjection, dir string,
) error {
	object, err := h.client.CoreV1().ConfigMaps(namespace).Get(ctx, source.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read ConfigMap %s: %w", source.Name, err)
	}
	items := source.Items
	if len(items) == 0 {
		for key := range object.Data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		content, ok := object.Data[item.Key]
		if !ok {
			return fmt.Errorf("ConfigMap %s has no key %s", source.Name, item.Key)
		}
		if err := replace(filepath.Join(dir, item.Path), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) projectFields(pod *corev1.Pod, source *corev1.DownwardAPIProjection, dir string) error {
	for _, item := range source.Items {
		if item.FieldRef == nil {
			return fmt.Errorf("the file %s has no fieldRef: other sources are not simulated", item.Path)
		}
		value, err := field(Container{Pod: pod}, item.FieldRef.FieldPath)
		if err != nil {
			return err
		}
		if err := replace(filepath.Join(dir, item.Path), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

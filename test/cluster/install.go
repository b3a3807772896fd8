package cluster

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/config"
)

// installOwner is the field owner of installed objects, which is not the operator's.
const installOwner = client.FieldOwner("installer")

// installOrder lists kinds that others depend on first; unlisted kinds come last.
var installOrder = []string{
	"CustomResourceDefinition", "Namespace", "ServiceAccount",
	"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
}

// Install renders a kustomization and applies all of its objects except Deployments: without containers the operator
// runs as a process instead.
func Install(ctx context.Context, cfg *rest.Config, kustomizeDir string) error {
	objects, err := Render(kustomizeDir)
	if err != nil {
		return err
	}
	return InstallObjects(ctx, cfg, objects)
}

// InstallObjects applies objects in installOrder, except Deployments.
func InstallObjects(ctx context.Context, cfg *rest.Config, objects []*unstructured.Unstructured) error {
	objects = slices.DeleteFunc(slices.Clone(objects),
		func(obj *unstructured.Unstructured) bool { return obj.GetKind() == "Deployment" })
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("register CustomResourceDefinition: %w", err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for _, obj := range objects {
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), installOwner, client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", obj.GetKind(), client.ObjectKeyFromObject(obj), err)
		}
		if obj.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := waitEstablished(ctx, c, obj.GetName()); err != nil {
			return err
		}
	}
	return nil
}

// rendered are the objects of each folder of config, in the order of installation. The folders do not change while
// this program runs, and to render config/default costs 0.4 s.
var rendered = struct {
	lock    sync.Mutex
	folders map[string][]*unstructured.Unstructured
}{folders: map[string][]*unstructured.Unstructured{}}

// Render returns the objects that "kustomize build" prints, in the order of installation.
func Render(dir string) ([]*unstructured.Unstructured, error) {
	root, err := repositoryRoot()
	if err != nil {
		return nil, err
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve folder: %w", err)
	}
	if !strings.HasPrefix(absolute, filepath.Join(root, "config")+string(filepath.Separator)) {
		return build(dir)
	}
	rendered.lock.Lock()
	defer rendered.lock.Unlock()
	if rendered.folders[absolute] == nil {
		if rendered.folders[absolute], err = build(absolute); err != nil {
			return nil, err
		}
	}
	var objects []*unstructured.Unstructured
	for _, object := range rendered.folders[absolute] {
		objects = append(objects, object.DeepCopy())
	}
	return objects, nil
}

// build renders a folder.
func build(dir string) ([]*unstructured.Unstructured, error) {
	objects, err := config.Build(dir)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(installRank(a.GetKind()), installRank(b.GetKind()))
	})
	return objects, nil
}

func installRank(kind string) int {
	if rank := slices.Index(installOrder, kind); rank >= 0 {
		return rank
	}
	return len(installOrder)
}

// waitEstablished returns once the API server serves the kind.
func waitEstablished(ctx context.Context, c client.WithWatch, name string) error {
	byName := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)}
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	events, err := c.Watch(ctx, list, byName)
	if err != nil {
		return fmt.Errorf("watch CustomResourceDefinition %s: %w", name, err)
	}
	_, err = watchtools.UntilWithoutRetry(ctx, events, func(event watch.Event) (bool, error) {
		crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition)
		return ok && isEstablished(crd), nil
	})
	if err != nil {
		return fmt.Errorf("wait for CustomResourceDefinition %s: %w", name, err)
	}
	return nil
}

func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// DropFinalizers removes all finalizers of an object, which may be gone: those of an operator that does not run.
func DropFinalizers(ctx context.Context, c client.Client, object client.Object) error {
	none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	return client.IgnoreNotFound(c.Patch(ctx, object, none))
}

package render

import (
	"cmp"
	"maps"
	"path"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

const (
	onDelete    = "OnDelete"
	appLabel    = labels.App
	partOfLabel = labels.PartOf
)

// completeDaemonSet composes the pod, then adds what all DaemonSets have in common and what the spec configures for
// this one.
func (r *renderer) completeDaemonSet(ds *appsv1.DaemonSet) error {
	if err := r.compose(&ds.Spec.Template.Spec); err != nil {
		return err
	}
	spec := r.plan.Input.Spec.DaemonSets
	ds.Spec.UpdateStrategy = updateStrategy(r.plan.Input.Spec, r.step.Operand)
	placement := r.placement()
	addMetadata(ds, placement.Labels, placement.Annotations)
	addMetadata(ds, spec.Labels, spec.Annotations)
	template := &ds.Spec.Template
	template.Labels[labels.ManagedBy] = labels.ManagedByValue
	template.Labels[labels.Operand] = string(r.step.Operand.Name)
	r.labelNodePool(ds)
	r.keepPartOf(ds)
	r.schedule(&template.Spec, spec)
	r.addPluginConfig(template)
	r.applyContainerSpec(&template.Spec)
	r.requestInjection(template)
	r.addHelperContainer(&template.Spec)
	r.applyContainerResources(&template.Spec)
	r.applyGlobal(&template.Spec)
	keepLastOutput(&template.Spec)
	r.stampDigest(ds)
	r.tolerateOwnTaints(&template.Spec)
	r.removeProvidedVolumes(&template.Spec)
	r.applyInitResources(&template.Spec)
	r.addDownloads(&template.Spec)
	return r.checkPod(template)
}

// removeProvidedVolumes removes the volumes that the container runtime mounts itself. It runs after stampDigest: a
// running pod works with either, so the difference must not make a driver look outdated.
func (r *renderer) removeProvidedVolumes(pod *corev1.PodSpec) {
	provided := r.instance.ProvidedVolumes
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v corev1.Volume) bool { return slices.Contains(provided, v.Name) })
	manifest.ForEachContainer(pod, func(c *corev1.Container) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return slices.Contains(provided, m.Name)
		})
	})
}

// keepLastOutput makes the kubelet report the end of the log of a container that fails without a termination message,
// as those of other images do.
func keepLastOutput(pod *corev1.PodSpec) {
	manifest.ForEachContainer(pod, func(c *corev1.Container) {
		c.TerminationMessagePolicy = cmp.Or(c.TerminationMessagePolicy, corev1.TerminationMessageFallbackToLogsOnError)
	})
}

// tolerateOwnTaints adds tolerations for the startup taints, and for that of a node with an unhealthy GPU where the
// spec requires it. It runs after stampDigest: a running pod does not need these tolerations, so they must not make a
// driver look outdated.
func (r *renderer) tolerateOwnTaints(pod *corev1.PodSpec) {
	toleratesAll := func(t corev1.Toleration) bool {
		return t.Key == "" && t.Operator == corev1.TolerationOpExists && t.Effect == ""
	}
	if slices.ContainsFunc(pod.Tolerations, toleratesAll) {
		return
	}
	pod.Tolerations = slices.Clone(pod.Tolerations)
	tolerate := func(key string, effect corev1.TaintEffect) {
		toleration := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		if !slices.Contains(pod.Tolerations, toleration) {
			pod.Tolerations = append(pod.Tolerations, toleration)
		}
	}
	for _, taint := range r.plan.Input.Spec.NodeStartup.Taints {
		tolerate(taint.Key, taint.Effect)
	}
	if r.plan.Input.Spec.TaintsUnhealthyNodes() {
		tolerate(labels.TaintUnhealthy, corev1.TaintEffectNoSchedule)
	}
}

func updateStrategy(spec effective.Spec, o operand.Operand) appsv1.DaemonSetUpdateStrategy {
	if o.UpdatesOnDelete || spec.DaemonSets.UpdateStrategy == onDelete {
		return appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	}
	return appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(spec.MaxUnavailable(o.Discovers))},
	}
}

// addMetadata adds the user's labels and annotations. They never replace those of the manifest, on which selectors and
// other software rely.
func addMetadata(ds *appsv1.DaemonSet, extraLabels v1.Labels, extraAnnotations v1.Annotations) {
	template := &ds.Spec.Template
	for key, value := range extraLabels.Strings() {
		if key == appLabel || key == partOfLabel {
			continue
		}
		setIfMissing(&ds.Labels, key, value)
		setIfMissing(&template.Labels, key, value)
	}
	for key, value := range extraAnnotations.Strings() {
		setIfMissing(&ds.Annotations, key, value)
		setIfMissing(&template.Annotations, key, value)
	}
}

func setIfMissing(to *map[string]string, key, value string) {
	if *to == nil {
		*to = map[string]string{}
	}
	if _, exists := (*to)[key]; !exists {
		(*to)[key] = value
	}
}

func (r *renderer) schedule(pod *corev1.PodSpec, spec *v1.DaemonSetsSpec) {
	pod.NodeSelector = r.nodeSelector()
	placement := r.placement()
	pod.PriorityClassName = cmp.Or(placement.PriorityClassName, spec.PriorityClassName)
	pod.Tolerations = spec.Tolerations
	if len(placement.Tolerations) > 0 {
		pod.Tolerations = placement.Tolerations
	}
	// An empty block means the same as no block, and must not make pods look outdated.
	context := cmp.Or(placement.PodSecurityContext, spec.PodSecurityContext)
	if !equality.Semantic.DeepEqual(*context, corev1.PodSecurityContext{}) {
		pod.SecurityContext = context
	}
}

func (r *renderer) nodeSelector() map[string]string {
	if r.step.Operand.Discovers {
		selector := map[string]string{corev1.LabelOSStable: string(corev1.Linux)}
		// Discovery runs before the GPU nodes are known, so its nodes are not selected by deploy labels.
		maps.Copy(selector, r.placement().NodeSelector.Strings())
		return selector
	}
	selector := map[string]string{r.step.Operand.Name.DeployLabel(): labels.True}
	if r.step.Operand.Follows != "" {
		selector[r.step.Operand.Follows.DeployLabel()] = labels.True
	}
	if r.instance.Pool != "" {
		selector[labels.Pool] = r.instance.Pool
	}
	if r.instance.Layout != "" {
		selector[labels.Layout] = r.instance.Layout
	}
	if key := r.step.Operand.NodePoolLabel(); key != "" && r.instance.NodePool != "" {
		selector[key] = r.instance.NodePool
	}
	return selector
}

// applyContainerSpec applies what the spec configures for this operand's containers.
func (r *renderer) applyContainerSpec(pod *corev1.PodSpec) {
	spec := r.instance.Container
	if spec.HostNetwork != nil && *spec.HostNetwork {
		pod.HostNetwork = true
		pod.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	for i := range pod.Containers {
		container := &pod.Containers[i]
		if spec.Resources != nil {
			container.Resources = corev1.ResourceRequirements{Limits: spec.Resources.Limits, Requests: spec.Resources.Requests}
		}
		if container.Name != r.instance.Main {
			continue
		}
		if len(spec.Args) > 0 {
			container.Args = spec.Args
		}
		container.Env = mergeEnv(container.Env, spec.Env)
	}
	for i := range pod.InitContainers {
		pod.InitContainers[i].Env = mergeEnv(pod.InitContainers[i].Env, r.instance.InitEnv[pod.InitContainers[i].Name])
	}
	pod.ImagePullSecrets = append(pod.ImagePullSecrets, r.pullSecrets()...)
}

// pullSecrets are those of the operand, of the helper image and of spec.global, each once.
func (r *renderer) pullSecrets() []corev1.LocalObjectReference {
	var found []corev1.LocalObjectReference
	in := r.plan.Input
	all := slices.Concat(r.instance.PullSecrets, in.HelperSpec().ImagePullSecrets, in.Spec.Global.ImagePullSecrets)
	for _, name := range all {
		if secret := (corev1.LocalObjectReference{Name: name}); name != "" && !slices.Contains(found, secret) {
			found = append(found, secret)
		}
	}
	return found
}

func mergeEnv(env []corev1.EnvVar, more []v1.EnvVar) []corev1.EnvVar {
	for _, add := range more {
		value := corev1.EnvVar{Name: add.Name, Value: add.Value}
		at := slices.IndexFunc(env, func(have corev1.EnvVar) bool { return have.Name == add.Name })
		if at < 0 {
			env = append(env, value)
			continue
		}
		env[at] = value
	}
	return env
}

// stampDigest writes the digest of the significant part of the pod template to the DaemonSet and its pods. It keeps the
// live helper image while nothing else changes, so that an upgrade of the operator alone replaces no pod.
func (r *renderer) stampDigest(ds *appsv1.DaemonSet) {
	helper, named := r.context.Helper.Image, image.Named(r.plan.Input.HelperSpec())
	digest := rollout.Template{
		Pod: &ds.Spec.Template.Spec, Helper: helper, HelperNamed: named, Contents: r.contents(),
	}.Digest()
	helperImage := cmp.Or(r.helperImageToKeep(ds.Name, digest), helper)
	manifest.ForEachContainer(&ds.Spec.Template.Spec, func(c *corev1.Container) {
		// An image that the spec names is not recorded: it is always used, even if no pod becomes outdated.
		if rollout.ReplaceHelper(c, helper, helperImage) && !named {
			annotate(&ds.ObjectMeta, labels.HelperImage, helperImage)
		}
	})
	if r.step.Operand.DaemonSet == "" {
		r.excludeNodePools(ds)
	} else {
		r.selectByAnchor(ds)
	}
	// A new DaemonSet may get pods of an earlier one.
	if live, exists := r.live[ds.Name]; live.NeedsProbeScript || !exists && rollout.AnyNeedsProbeScript(r.live) {
		annotate(&ds.ObjectMeta, labels.ProbeScriptMounted, labels.True)
	}
	annotate(&ds.ObjectMeta, labels.TemplateDigest, digest)
	annotate(&ds.Spec.Template.ObjectMeta, labels.TemplateDigest, digest)
}

// helperImageToKeep returns the helper image that the DaemonSet was last applied with, if it stays in use, or "". An
// image that the spec names always takes precedence, and so does another registry: the former one may be gone.
func (r *renderer) helperImageToKeep(name, digest string) string {
	input := r.plan.Input
	live := r.live[name]
	if input.RefreshHelpers() || image.Named(input.HelperSpec()) || live.TemplateDigest != digest ||
		path.Dir(live.HelperImage) != path.Dir(r.context.Helper.Image) {
		return ""
	}
	return live.HelperImage
}

func annotate(meta *metav1.ObjectMeta, key, value string) {
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[key] = value
}

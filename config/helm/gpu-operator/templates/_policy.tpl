{{/* The spec of the ClusterPolicy, as JSON: what the values set, and the fields that it always has. Argument: root. */}}
{{- define "gpu-operator.spec" -}}
{{- $known := .Files.Get "files/keys.json" | fromJson -}}
{{- $state := dict "unknown" list -}}
{{- $spec := include "gpu-operator.typed" (dict "value" .Values "node" $known.keys "path" "" "state" $state "policy" true) | fromJson -}}
{{- include "gpu-operator.podDeletion" (list . $spec $known) -}}
{{- include "gpu-operator.shared" (list . $spec) -}}
{{- include "gpu-operator.single" (list . $spec) -}}
{{- if ((.Values.driver | default dict).nvidiaDriverCRD | default dict).enabled -}}
{{- $_ := set $spec "driver" (set (get $spec "driver" | default dict) "useNvidiaDriverCRD" true) -}}
{{- end -}}
{{/* False is the default of NVIDIA's chart, which drops it, so that OpenShift's driver toolkit stays on. */}}
{{- if eq (dig "operator" "use_ocp_driver_toolkit" true $spec) false -}}
{{- $_ := unset $spec.operator "use_ocp_driver_toolkit" -}}
{{- end -}}
{{- with (.Values.mig | default dict).config -}}
{{- $manager := get $spec "migManager" | default dict -}}
{{- $config := get $manager "config" | default dict -}}
{{- if and $config.default (ne $config.default (toString .)) -}}
{{- fail (printf "mig.config is %s and migManager.config.default is %s: they mean the same, remove one" . $config.default) -}}
{{- end -}}
{{- $_ := set $spec "migManager" (set $manager "config" (set $config "default" (toString .))) -}}
{{- end -}}
{{- if not (dig "mode" "" (get $spec "nodeDiscovery" | default dict)) -}}
{{- if eq (dig "enabled" true (.Values.nfd | default dict)) false -}}
{{- $_ := set $spec "nodeDiscovery" (set (get $spec "nodeDiscovery" | default dict) "mode" "nfd") -}}
{{- end -}}
{{- end -}}
{{- include "gpu-operator.always" (list . $spec $known.always) -}}
{{- toJson $spec -}}
{{- end }}

{{/* Adds the fields that the policy always has. A field that others than Helm have set in the cluster, such as by
kubectl patch, keeps its value: the default would conflict with it. Arguments: root, spec, defaults. */}}
{{- define "gpu-operator.always" -}}
{{- $live := dict -}}{{- $owned := list -}}
{{- if (index . 0).Release.IsUpgrade -}}
{{- $live = lookup "nvidia.com/v1" "ClusterPolicy" "" "cluster-policy" -}}
{{- range dig "metadata" "managedFields" list $live -}}
{{- if ne .manager "helm" }}{{ $owned = append $owned (dig "f:spec" dict (.fieldsV1 | default dict)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- include "gpu-operator.complete" (list (index . 1) (index . 2) (get $live "spec" | default dict) $owned) -}}
{{- end }}

{{/* Adds what is missing in a block. Not merge, to which false counts as missing. Arguments: block, defaults, the same
block in the cluster, the fields of it that others have set. */}}
{{- define "gpu-operator.complete" -}}
{{- $block := index . 0 -}}{{- $live := index . 2 -}}{{- $owned := index . 3 -}}
{{- range $key, $default := index . 1 -}}
{{- $below := list -}}
{{- range $owned -}}
{{- if hasKey . (printf "f:%s" $key) }}{{ $below = append $below (get . (printf "f:%s" $key)) }}{{ end -}}
{{- end -}}
{{- if not (kindIs "map" $default) -}}
{{- if not (hasKey $block $key) -}}
{{- $_ := set $block $key (ternary (get $live $key) $default (and (hasKey $live $key) (gt (len $below) 0))) -}}
{{- end -}}
{{- else -}}
{{- if not (hasKey $block $key) }}{{ $_ := set $block $key dict }}{{ end -}}
{{- if kindIs "map" (get $block $key) -}}
{{- include "gpu-operator.complete" (list (get $block $key) $default (get $live $key | default dict) $below) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* driver.upgradePolicy.gpuPodDeletion is podDeletion in the policy. Arguments: root, spec, keys. */}}
{{- define "gpu-operator.podDeletion" -}}
{{- $root := index . 0 -}}{{- $spec := index . 1 -}}
{{- $policy := ($root.Values.driver | default dict).upgradePolicy | default dict -}}
{{- with $policy.gpuPodDeletion -}}
{{- if $policy.podDeletion -}}
{{- fail "driver.upgradePolicy has gpuPodDeletion and podDeletion: they mean the same, remove one" -}}
{{- end -}}
{{- $driver := get $spec "driver" | default dict -}}
{{- $_ := set $spec "driver" (set $driver "upgradePolicy" (set (get $driver "upgradePolicy" | default dict) "podDeletion" .)) -}}
{{- end -}}
{{- end }}

{{/* A single configuration that the chart creates is the default: otherwise no node would use it. Arguments: root,
spec. */}}
{{- define "gpu-operator.single" -}}
{{- $config := ((index . 0).Values.devicePlugin | default dict).config | default dict -}}
{{- if and $config.create (not $config.default) (eq (len ($config.data | default dict)) 1) -}}
{{- $_ := set (index . 1).devicePlugin.config "default" (keys $config.data | first) -}}
{{- end -}}
{{- end }}

{{/* mps.enabled configures the device plugin to use the ConfigMap of the chart. Arguments: root, spec. */}}
{{- define "gpu-operator.shared" -}}
{{- $root := index . 0 -}}{{- $spec := index . 1 -}}
{{- if ($root.Values.mps | default dict).enabled -}}
{{- $plugin := get $spec "devicePlugin" | default dict -}}
{{- if ($plugin.config | default dict).name -}}
{{- fail "mps.enabled creates a configuration of the device plugin, and devicePlugin.config.name names another: remove one of them, or set sharing.mps in that configuration" -}}
{{- end -}}
{{- $_ := set $spec "devicePlugin" (set $plugin "config" (dict "name" "gpu-operator-mps" "default" "mps")) -}}
{{- end -}}
{{- end }}

{{/* Fails for values that request what does not exist. Argument: root. */}}
{{- define "gpu-operator.refuseUnsupported" -}}
{{- if eq (((.Values.driver | default dict).nvidiaDriverCRD | default dict).driverType | default "") "vgpu-host-manager" -}}
{{- fail "driver.nvidiaDriverCRD.driverType is vgpu-host-manager, which is not supported yet: set it to gpu or vgpu" -}}
{{- end -}}
{{- if (.Values.gpuCluster | default dict).deployCR -}}
{{- fail "gpuCluster.deployCR is true, and there is no kind GPUCluster here: remove it, and use the ClusterPolicy (clusterPolicy.deployCR)" -}}
{{- end -}}
{{- range $block, $what := dict "devicePlugin" "configurations" "migManager" "layouts" "dcgmExporter" "metrics" -}}
{{- $config := (get $.Values $block | default dict).config | default dict -}}
{{- if and $config.create $config.data (not $config.name) -}}
{{- fail (printf "%s.config.create is true without %s.config.name: set the name of the ConfigMap to create" $block $block) -}}
{{- end -}}
{{- end -}}
{{- with (.Values.devicePlugin | default dict).config -}}
{{- if and .create (not .data) -}}
{{- fail "devicePlugin.config.create is true without devicePlugin.config.data: set the configurations" -}}
{{- end -}}
{{- end -}}
{{- end }}

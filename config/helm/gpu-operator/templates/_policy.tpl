{{/* The spec of the ClusterPolicy, as JSON: what the values set, and the fields that it always has. Argument: root. */}}
{{- define "gpu-operator.spec" -}}
{{- $known := .Files.Get "files/keys.json" | fromJson -}}
{{- $state := dict "unknown" list -}}
{{- $spec := include "gpu-operator.typed" (dict "value" .Values "node" $known.keys "path" "" "state" $state "policy" true) | fromJson -}}
{{- include "gpu-operator.podDeletion" (list . $spec $known) -}}
{{- include "gpu-operator.shared" (list . $spec) -}}
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
{{- include "gpu-operator.complete" (list $spec $known.always) -}}
{{- toJson $spec -}}
{{- end }}

{{/* Adds what is missing in a block. Not merge, to which false counts as missing. Arguments: block, defaults. */}}
{{- define "gpu-operator.complete" -}}
{{- $block := index . 0 -}}
{{- range $key, $default := index . 1 -}}
{{- if not (hasKey $block $key) -}}
{{- $_ := set $block $key $default -}}
{{- else if and (kindIs "map" $default) (kindIs "map" (get $block $key)) -}}
{{- include "gpu-operator.complete" (list (get $block $key) $default) -}}
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
{{- if ((.Values.driver | default dict).nvidiaDriverCRD | default dict).enabled -}}
{{- fail "driver.nvidiaDriverCRD.enabled is true, and there is no kind NVIDIADriver here: remove it, and set the values driver.* to what the NVIDIADriver has" -}}
{{- end -}}
{{- if (.Values.gpuCluster | default dict).deployCR -}}
{{- fail "gpuCluster.deployCR is true, and there is no kind GPUCluster here: remove it, and use the ClusterPolicy (clusterPolicy.deployCR)" -}}
{{- end -}}
{{- range $block, $what := dict "devicePlugin" "configurations" "migManager" "layouts" "dcgmExporter" "metrics" -}}
{{- $config := (get $.Values $block | default dict).config | default dict -}}
{{- if and $config.create (not $config.name) -}}
{{- fail (printf "%s.config.create is true without %s.config.name: set the name of the ConfigMap to create" $block $block) -}}
{{- end -}}
{{- if and $config.create (not $config.data) -}}
{{- fail (printf "%s.config.create is true without %s.config.data: set the %s" $block $block $what) -}}
{{- end -}}
{{- if and $config.data (not $config.create) -}}
{{- fail (printf "%s.config.data is set without %s.config.create: set create to true, or remove the %s" $block $block $what) -}}
{{- end -}}
{{- end -}}
{{- end }}

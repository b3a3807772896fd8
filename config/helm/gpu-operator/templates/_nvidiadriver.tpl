{{/* The spec of the NVIDIADriver default, as JSON: the driver of the policy, which an NVIDIADriver does not inherit.
Argument: root. */}}
{{- define "gpu-operator.nvidiaDriver" -}}
{{- $spec := include "gpu-operator.spec" . | fromJson -}}
{{- $values := .Values.driver.nvidiaDriverCRD -}}
{{- $driver := $spec.driver -}}{{- $all := $spec.daemonsets -}}
{{- if $driver.containerResources -}}
{{- fail "driver.containerResources is set, and NVIDIADrivers have no such field: remove it, or set driver.nvidiaDriverCRD.deployDefaultCR=false" -}}
{{- end -}}
{{- $object := pick $driver "args" "certConfig" "env" "hostNetwork" "image" "imagePullPolicy" "imagePullSecrets" "kernelModuleConfig" "kernelModuleType" "livenessProbe" "manager" "priorityClassName" "rdma" "readinessProbe" "repository" "resources" "secretEnv" "startupProbe" "upgradePolicy" "usePrecompiled" "version" -}}
{{- $_ := set $object "gds" $spec.gds -}}
{{- $_ := set $object "gdrcopy" $spec.gdrcopy -}}
{{- $_ := set $object "licensingConfig" (omit (set $driver.licensingConfig "name" $driver.licensingConfig.configMapName) "configMapName") -}}
{{- $_ := set $object "repoConfig" (dict "name" $driver.repoConfig.configMapName) -}}
{{- $_ := set $object "virtualTopologyConfig" (dict "name" $driver.virtualTopology.config) -}}
{{- $_ := set $object "podSecurityContext" $all.podSecurityContext -}}
{{- $_ := set $object "priorityClassName" ($driver.priorityClassName | default $all.priorityClassName) -}}
{{- range $key := list "labels" "annotations" -}}
{{- $both := dict -}}
{{- range list $all $driver }}{{ range $name, $value := get . $key | default dict }}{{ $_ := set $both $name $value }}{{ end }}{{ end -}}
{{- $_ := set $object $key $both -}}
{{- end -}}
{{/* Every NVIDIADriver has this one. */}}
{{- $gpu := dict "key" "nvidia.com/gpu" "operator" "Exists" "effect" "NoSchedule" -}}
{{- $tolerations := list -}}
{{- range $driver.tolerations | default $all.tolerations | default list -}}
{{- if ne (toJson .) (toJson $gpu) }}{{ $tolerations = append $tolerations . }}{{ end -}}
{{- end -}}
{{- $_ := set $object "tolerations" $tolerations -}}
{{- with $values.driverType }}{{ $_ := set $object "driverType" . }}{{ end -}}
{{- $selector := dict -}}
{{- range $key, $value := $values.nodeSelector | default $driver.nodeSelector | default $all.nodeSelector | default dict -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $selector $key (include "gpu-operator.text" $value) }}{{ end -}}
{{- end -}}
{{- if $selector }}{{ $_ := set $object "nodeSelector" $selector }}{{ else }}{{ $_ := set $object "default" true }}{{ end -}}
{{/* An empty value of a label or of a node selector is one. */}}
{{- $texts := pick $object "labels" "annotations" "nodeSelector" -}}
{{- $object = omit $object "labels" "annotations" "nodeSelector" -}}
{{- include "gpu-operator.compact" $object -}}
{{- range $key, $value := $texts }}{{ if $value }}{{ $_ := set $object $key $value }}{{ end }}{{ end -}}
{{- toJson $object -}}
{{- end }}

{{/* Removes empty fields, and blocks that have no others. Argument: the block. */}}
{{- define "gpu-operator.compact" -}}
{{- $block := . -}}
{{- range $key := keys $block -}}
{{- $value := get $block $key -}}
{{- if kindIs "map" $value }}{{ include "gpu-operator.compact" $value }}{{ end -}}
{{- if or (kindIs "invalid" $value) (and (has (kindOf $value) (list "map" "slice" "string")) (not $value)) -}}
{{- $_ := unset $block $key -}}
{{- end -}}
{{- end -}}
{{- end }}

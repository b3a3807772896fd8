{{/* Annotations of objects that exist only during helm upgrade. Argument: the weight. */}}
{{- define "gpu-operator.upgradeHook" -}}
helm.sh/hook: pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: hook-succeeded,before-hook-creation
{{- end }}

{{/* Annotations of objects that exist only during helm test. Argument: the weight. */}}
{{- define "gpu-operator.testHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: hook-succeeded,before-hook-creation
{{- end }}

{{/* The part of the pod spec that the pods of the hooks and the operator's have in common. */}}
{{- define "gpu-operator.ownPod" -}}
{{- with include "gpu-operator.pullSecrets" . }}{{ trim . }}
{{ end -}}
{{- with include "gpu-operator.given" (list . "nodeSelector") }}{{ . }}
{{ end -}}
tolerations: {{ include "gpu-operator.setting" (list . "tolerations" (include "gpu-operator.default.tolerations" .)) }}
securityContext: {{ include "gpu-operator.default.podSecurityContext" . }}
{{- end }}

{{/* The part of the container spec that they have in common. */}}
{{- define "gpu-operator.ownContainer" -}}
image: {{ include "gpu-operator.image" . | quote }}
{{- with include "gpu-operator.given" (list . "imagePullPolicy") }}
{{ . }}
{{- end }}
resources: {{ include "gpu-operator.setting" (list . "resources" (include "gpu-operator.default.resources" .)) }}
securityContext: {{ include "gpu-operator.default.containerSecurityContext" . }}
{{- end }}

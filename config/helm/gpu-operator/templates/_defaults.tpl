{{- /* Written by make chart from config/manager: change that instead. */ -}}
{{- define "gpu-operator.default.tolerations" -}}
[{"effect":"NoSchedule","key":"node-role.kubernetes.io/control-plane","operator":"Exists"}]
{{- end }}
{{- define "gpu-operator.default.podSecurityContext" -}}
{"runAsGroup":65532,"runAsNonRoot":true,"runAsUser":65532,"seccompProfile":{"type":"RuntimeDefault"}}
{{- end }}
{{- define "gpu-operator.default.resources" -}}
{"limits":{"memory":"256Mi"},"requests":{"cpu":"10m","memory":"64Mi"}}
{{- end }}
{{- define "gpu-operator.default.containerSecurityContext" -}}
{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"readOnlyRootFilesystem":true}
{{- end }}

{{- /*
docs/api.md. The blocks are in the order of the policy and then of NVIDIADriver, each after the block that contains it;
names, words and numbers, which many blocks use, come last. A type that is inlined has no section: its fields are listed in the
blocks that inline it.
*/ -}}

{{- /* visit walks from .type and collects the types of this API: all in .seen, blocks in .blocks in order. */ -}}
{{- define "visit" -}}
{{- with .type -}}
{{- template "visit" (set (omit $ "type") "type" .KeyType) -}}
{{- template "visit" (set (omit $ "type") "type" .ValueType) -}}
{{- if and (contains "gpu-operator/api/" .Package) (not (hasKey $.seen .Name)) (has (printf "%d" .Kind) (list "0" "6" "8")) -}}
{{- $_ := set $.seen .Name . -}}
{{- if .Fields -}}{{- $_ := set $.blocks "list" (append (get $.blocks "list") .) -}}{{- end -}}
{{- range .Fields -}}{{- template "visit" (set (omit $ "type") "type" .Type) -}}{{- end -}}
{{- end -}}
{{- template "visit" (set (omit $ "type") "type" .UnderlyingType) -}}
{{- end -}}
{{- end -}}

{{- define "gvList" -}}
# API reference

<!-- Written by make docs from api/v1 and api/v1alpha1: do not edit. -->

Every field of the ClusterPolicy, and of [NVIDIADriver](#nvidiadriver). See the [README](../README.md) for how to use it, [migration.md](migration.md) for the differences from NVIDIA's API, and [config/samples](../config/samples) for policies of common cases.
Defaults are described, not stored: the operator applies them and never writes them into a policy. A field is optional unless it is marked as required. `kubectl explain` shows the first paragraph of each description.
{{- $seen := dict -}}
{{- $blocks := dict "list" list -}}
{{- range $gv := . -}}
{{- range .SortedKinds -}}
{{- template "visit" dict "type" ($gv.TypeForKind .) "seen" $seen "blocks" $blocks -}}
{{- end -}}
{{- end -}}
{{- range get $blocks "list" }}

## {{ .Name }}

{{ template "text" .Doc }}

| field | type | description | values |
|---|---|---|---|
{{- with .GVK }}
| `apiVersion` | string | `{{ .GroupVersion }}` | required |
| `kind` | string | `{{ .Kind }}` | required |
{{- end }}
{{- range .Fields }}
| `{{ .Name }}` | {{ template "typename" dict "type" .Type "seen" $seen }} | {{ if eq .Name "metadata" }}Metadata of the object, which is cluster-scoped.{{ else }}{{ template "text" .Doc }}{{ end }} | {{ template "values" (dict "of" . "required" (not (or (index .Markers "optional") (eq .Name "metadata")))) }} |
{{- end }}
{{- end }}
{{- range keys $seen | sortAlpha }}
{{- with get $seen . }}
{{- if not .Fields }}

## {{ .Name }}

{{ template "text" .Doc }}

| type | values |
|---|---|
| {{ if .UnderlyingType }}{{ template "typename" dict "type" .UnderlyingType "seen" $seen }}{{ else }}{{ template "alias" . }}{{ end }} | {{ template "values" (dict "of" . "required" false) }} |
{{- end }}
{{- end }}
{{- end }}
{{ end -}}

{{- /* text is a comment of Go as one line of Markdown, paragraphs apart. */ -}}
{{- define "text" -}}
{{ . | trim | replace "|" "\\|" | replace "<" "&lt;" | replace "\n\n" "<br>" | replace "\n" " " }}
{{- end -}}

{{- /* typename is the type in YAML, with a link to its section or to the reference of Kubernetes. */ -}}
{{- define "typename" -}}
{{- $seen := .seen -}}
{{- with .type -}}
{{- $kind := printf "%d" .Kind -}}
{{- if and (hasKey $seen .Name) (has $kind (list "0" "6" "8")) -}}
[{{ .Name }}](#{{ lower .Name }})
{{- else if eq $kind "3" -}}
map of {{ template "typename" dict "type" .ValueType "seen" $seen }}
{{- else if eq $kind "4" -}}
{{ template "typename" dict "type" .UnderlyingType "seen" $seen }}
{{- else if eq $kind "5" -}}
list of {{ template "typename" dict "type" .UnderlyingType "seen" $seen }}
{{- else if and (eq $kind "0") .UnderlyingType .UnderlyingType.IsBasic -}}
{{ markdownRenderType .UnderlyingType }}
{{- else -}}
{{ markdownRenderType . }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* alias is the basic type of a Go alias, which crd-ref-docs does not provide: a number if it has bounds of one. */ -}}
{{- define "alias" -}}
{{ if or (index .Markers "kubebuilder:validation:Minimum") (index .Markers "kubebuilder:validation:Maximum") }}integer{{ else }}string{{ end }}
{{- end -}}

{{- /* values are the enumeration, the bounds and the rules of a field or type. */ -}}
{{- define "values" -}}
{{- $lines := list -}}
{{- if .required -}}{{- $lines = append $lines "required" -}}{{- end -}}
{{- with .of -}}
{{- range index .Markers "kubebuilder:validation:Enum" -}}
{{- $words := list -}}
{{- range . -}}{{- $words = append $words (. | toString | quote | replace "\"" "`" | replace "``" "empty") -}}{{- end -}}
{{- $lines = append $lines (join ", " $words) -}}
{{- end -}}
{{- range .Validation -}}
{{- if not (regexMatch "^(Optional|Required|Enum|XIntOrString|Type|Schemaless|items:XValidation)" .) -}}
{{- $lines = append $lines (. | replace "|" "\\|") -}}
{{- end -}}
{{- end -}}
{{- range index .Markers "kubebuilder:validation:XValidation" -}}
{{- $lines = append $lines (printf "Rule: %s" .Message) -}}
{{- end -}}
{{- end -}}
{{ join "<br>" $lines }}
{{- end -}}

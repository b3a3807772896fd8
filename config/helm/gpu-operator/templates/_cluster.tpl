{{/* Fails if the cluster has another operator for the same kind, or its CustomResourceDefinition, before anything is
written. With operator.takeOver the other operator may be in another namespace. Without a cluster, as in helm template and
GitOps, nothing is looked up. Argument: root. */}}
{{- define "gpu-operator.refuseOthers" -}}
{{- $definition := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "clusterpolicies.nvidia.com" -}}
{{- if $definition -}}
{{- $namespaces := list .Release.Namespace "gpu-operator" "nvidia-gpu-operator" "gpu-operator-resources" -}}
{{- with dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "gpu-operator") -}}
{{- $namespaces = append $namespaces . -}}
{{- end -}}
{{- $own := "" -}}
{{- $takeOver := (.Values.operator | default dict).takeOver -}}
{{- range uniq $namespaces -}}
{{- with lookup "apps/v1" "Deployment" . "gpu-operator" -}}
{{- if include "gpu-operator.isOwn" . -}}
{{- $own = "yes" -}}
{{- else if not (and $takeOver (ne .metadata.namespace $.Release.Namespace)) -}}
{{- include "gpu-operator.refuseOther" (list . $) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not (or $own (include "gpu-operator.isOwnDefinition" $definition)) -}}
{{- fail (printf "CustomResourceDefinition clusterpolicies.nvidia.com is that of another operator, and the API server would drop fields of the ClusterPolicy: replace it, which keeps stored policies: kubectl apply --server-side --force-conflicts -f CHART/crds/ (helm pull gets the folder CHART)") -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Not empty if a Deployment is of this operator, which gets the name of its own image. Argument: the Deployment. */}}
{{- define "gpu-operator.isOwn" -}}
{{- range .spec.template.spec.containers }}{{ range .env }}{{ if eq .name "OPERATOR_IMAGE" }}yes{{ end }}{{ end }}{{ end -}}
{{- end }}

{{/* Not empty if a definition is of this operator. Argument: the CustomResourceDefinition. */}}
{{- define "gpu-operator.isOwnDefinition" -}}
{{- range .spec.versions -}}
{{- if dig "schema" "openAPIV3Schema" "properties" "spec" "properties" "nodeDiscovery" "" . }}yes{{ end -}}
{{- end -}}
{{- end }}

{{/* Fails because of another operator's Deployment, with the command that removes it. Arguments: the Deployment, root. */}}
{{- define "gpu-operator.refuseOther" -}}
{{- $metadata := (index . 0).metadata -}}{{- $root := index . 1 -}}
{{- $release := dig "annotations" "meta.helm.sh/release-name" "" $metadata -}}
{{- $remedy := printf "kubectl delete deployment gpu-operator --namespace %s" $metadata.namespace -}}
{{- if $release -}}
{{- $remedy = printf "helm uninstall %s --namespace %s" $release $metadata.namespace -}}
{{- else if dig "labels" "olm.owner" "" $metadata -}}
{{- $remedy = printf "kubectl delete subscription,clusterserviceversion --all --namespace %s, if nothing else is installed there" $metadata.namespace -}}
{{- end -}}
{{- $text := printf "Deployment gpu-operator in namespace %s is another operator for the kind ClusterPolicy, and two would work against each other: migrate from it with kubectl gpu migrate, as docs/migration.md describes, which keeps its operands running; or remove it, its ClusterPolicy and its operands first: %s" $metadata.namespace $remedy -}}
{{- if and $root.Release.IsUpgrade (eq $release $root.Release.Name) -}}
{{- $text = printf "%s. Then run helm install instead of helm upgrade" $text -}}
{{- end -}}
{{- fail $text -}}
{{- end }}

{{/* Not empty if the cluster has the definition of this release, so that the API server can check the policy. Before an
upgrade to another definition it cannot, as new fields would be unknown. Argument: root. */}}
{{- define "gpu-operator.canCheck" -}}
{{- if ne (dig "deployCR" true (.Values.clusterPolicy | default dict)) false -}}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "clusterpolicies.nvidia.com" -}}
{{- $own := $.Files.Get "crds/nvidia.com_clusterpolicies.yaml" | fromYaml -}}
{{- if eq (toJson (first .spec.versions).schema) (toJson (first $own.spec.versions).schema) }}yes{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

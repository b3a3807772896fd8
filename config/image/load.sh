#!/usr/bin/env bash
# Loads an image into the container runtime of each node of the current context's cluster, for make up.
#
#   load.sh way            prints how: kind, k3d, minikube, k3s, containerd or docker; fails if none fits
#   load.sh load ARCHIVE   loads an archive in the OCI layout
#
# LOAD names the way instead of what the cluster shows. KUBECTL and CONTAINER_TOOL (default docker) name programs, and
# CONTAINERD_ADDRESS the socket of containerd.
set -euo pipefail

fail() { echo "make up: $*" >&2; exit 2; }

# k3s and containerd serve root only.
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

kubectl=${KUBECTL:-kubectl}
remedy='set REGISTRY= to a registry that the nodes pull from, or LOAD= to kind, k3d, minikube, k3s, containerd or docker'
# A word for each fact, - for none: kind and k3s show in the provider's ID, minikube in its label.
facts='{{range .items}}{{.metadata.name}} {{or .spec.providerID "-"}} {{.status.nodeInfo.containerRuntimeVersion}} '
facts+='{{or (index .metadata.labels "minikube.k8s.io/name") "-"}}{{"\n"}}{{end}}'

context=$("$kubectl" config current-context) || fail "KUBECONFIG has no current context: kubectl config use-context NAME"
nodes=$("$kubectl" get nodes --output go-template="$facts") || fail "the nodes of context $context cannot be listed"
[ -n "$nodes" ] || fail "the cluster of context $context has no node"
read -r node provider runtime profile <<< "$nodes"

# The runtime of this machine is that of the cluster only if its one node is this machine.
is_local() { [ "$(wc -l <<< "$nodes")" = 1 ] && [ "$node" = "$(hostname)" ]; }

way() {
  case "$provider $profile" in
    kind://*) echo kind; return ;;
    k3s://k3d-*) echo k3d; return ;;
    *" -") ;;
    *) echo minikube; return ;;
  esac
  case "$context $runtime" in
    docker-desktop\ docker://* | rancher-desktop\ docker://* | orbstack\ docker://*) echo docker; return ;;
  esac
  is_local || fail "context $context is none of kind, k3d and minikube, and node $node is not this machine alone: $remedy"
  case "$provider $runtime" in
    k3s://*) echo k3s ;;
    *\ containerd://*) echo containerd ;;
    *\ docker://*) echo docker ;;
    *) fail "node $node has the container runtime $runtime, which no image is loaded into: $remedy" ;;
  esac
}

# cluster prints the name of a cluster of kind or k3d, which its context may not have.
cluster() {
  case $provider in
    kind://*) cut -d / -f 4 <<< "$provider" ;;
    k3s://k3d-*) sed -E 's,^k3s://k3d-(.*)-(server|agent)-[0-9]+$,\1,' <<< "$provider" ;;
    *) echo "${context#*-}" ;;
  esac
}

load() { # WAY ARCHIVE
  case $1 in
    kind) kind load image-archive "$2" --name "$(cluster)" ;;
    k3d) k3d image import "$2" --cluster "$(cluster)" ;;
    minikube) minikube image load "$2" --profile "$([ "$profile" = - ] && echo "$context" || echo "$profile")" ;;
    k3s) as_root k3s ctr --namespace k8s.io images import "$2" ;;
    containerd)
      as_root ctr --address "${CONTAINERD_ADDRESS:-/run/containerd/containerd.sock}" --namespace k8s.io images import "$2"
      ;;
    docker) "${CONTAINER_TOOL:-docker}" load --input "$2" ;;
  esac
}

way=${LOAD:-$(way)}
case $way in
  kind | k3d | minikube | k3s | containerd | docker) ;;
  *) fail "LOAD=$way is not known: $remedy" ;;
esac
case "${1:-} $#" in
  "way 1") echo "$way" ;;
  "load 2") load "$way" "$2" ;;
  *) fail "call load.sh with way, or with load and an archive" ;;
esac

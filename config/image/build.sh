#!/usr/bin/env bash
# The one way in which the programs are built: for make, for the Dockerfile and for the image that is made
# without one. It must run from the files that .dockerignore lets through.
#
#   build.sh programs DIR   the programs, into DIR
#   build.sh plugin DIR     kubectl-gpu with the licence, into DIR, as it is released
#   build.sh rootfs DIR     what the image has beyond its base, as it lies in the image; DIR must be empty
#
# VERSION (default dev) is what the programs call themselves. GOOS and GOARCH name the platform, as for go build.
set -euo pipefail

fail() { echo "build.sh: $*" >&2; exit 2; }

build() { # DIR PACKAGE...
  # No cgo, for arm64 from amd64 as well: gpu-node-cuda's library writes the loader and the C library into the
  # program itself. No data of the version control, so that a build without .git is the same.
  CGO_ENABLED=0 go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X github.com/clusterpolicy/gpu-operator/internal/names/version.Version=${VERSION:-dev}" -o "$1/" "${@:2}"
}

[ $# = 2 ] || fail "call it with programs, plugin or rootfs, and a directory"
mkdir -p "$2"
dir=$(cd "$2" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

case $1 in
  programs)
    build "$dir" ./cmd/...
    ;;
  plugin)
    build "$dir" ./cmd/kubectl-gpu
    cp LICENSE "$dir/LICENSE"
    ;;
  rootfs)
    [ -z "$(ls -A "$dir")" ] || fail "$dir is not empty: what lies there would get into the image"
    # gpu-node and gpu-node-cuda run in the operands' pods; their paths are known to the manifests.
    # Every GPU node pulls the image. kubectl-gpu is a program of people's computers and has a release of its own.
    mkdir -p "$dir/usr/bin" "$dir/licenses"
    GOOS=linux build "$dir/usr/bin" ./cmd/gpu-operator ./cmd/gpu-node ./cmd/gpu-node-cuda
    ln -s usr/bin/gpu-operator "$dir/gpu-operator"
    cp LICENSE "$dir/licenses/LICENSE"
    ;;
  *)
    fail "it knows programs, plugin and rootfs, not $1"
    ;;
esac

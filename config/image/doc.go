// Command image makes the operator's image without a container engine: an archive in the OCI layout, which "ctr
// images import", "podman load", "skopeo copy oci-archive:" and docker 25 and later take.
//
// It also writes the SBOM of the programs (--sbom), which is valid for the Dockerfile's image too: both have the
// files of build.sh.
//
// Without --base it has no C library: gpu-node-cuda and nvidia-smi do not start in it, so that the validator stops at
// the toolkit. With the base image of the Dockerfile both have the same files.
//
// Command image release makes everything that a release consists of: the image for all architectures, and what names
// it by digest, which are install.yaml, the chart, the bundle and the catalogue, and the plugin of kubectl for each
// platform with its manifest for krew. It pushes the former with --push. The same sources make the same files.
package main

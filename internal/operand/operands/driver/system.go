package driver

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// hostMount is a file or directory of the host that the driver container reads.
type hostMount struct {
	Name, Path string
	Type       corev1.HostPathType
	MountPath  string
}

// system describes what the driver image for an operating system expects, see NVIDIA's gpu-driver-container.
type system struct {
	// repositories and certificates are the directories with the repositories of the package manager and with the trusted
	// certificates.
	repositories, certificates string
	// repositoryNames and certificateNames are the names, or their ends, of the files that are read there; any if empty.
	repositoryNames, certificateNames []string
	// bundle is the file in certificates that may have many of them.
	bundle string
	// subscription are the files of the host's subscription, which gives access to the vendor's packages.
	subscription []hostMount
	// keepsSubscription: the subscription is also the access to the user's repositories.
	keepsSubscription bool
	// hostModules: the precompiled image needs the host's kernel modules.
	hostModules bool
	// coreOS: it is Red Hat CoreOS, whose drivers are built with OpenShift's driver toolkit.
	coreOS bool
}

var (
	debian = system{repositories: "/etc/apt/sources.list.d", certificates: "/usr/local/share/ca-certificates",
		bundle: "gpu-operator-ca-bundle.crt", repositoryNames: []string{".list", ".sources"},
		certificateNames: []string{".crt"}}
	fedora = system{repositories: "/etc/yum.repos.d", certificates: "/etc/pki/ca-trust/extracted/pem",
		bundle: "tls-ca-bundle.pem", repositoryNames: []string{".repo"}, certificateNames: []string{"tls-ca-bundle.pem"}}
	suse = system{
		repositories: "/etc/zypp/repos.d", certificates: "/etc/pki/trust/anchors",
		bundle: "gpu-operator-ca-bundle.pem", repositoryNames: []string{".repo"}, hostModules: true,
		subscription: []hostMount{
			{"subscription-credentials", "/etc/zypp/credentials.d", "Directory", "/etc/zypp/credentials.d"},
			// A host that is not registered has no such file.
			{"subscription-connect", "/etc/SUSEConnect", "FileOrCreate", "/etc/SUSEConnect"},
		},
		keepsSubscription: true,
	}
)

// systems are indexed by the ID of os-release.
var systems = map[string]system{
	"debian": debian, "ubuntu": debian,
	"centos": fedora, "rocky": fedora, "ol": fedora, "rhel": redHat(false), "rhcos": redHat(true),
	"sles": suse, "sl-micro": suse,
}

func redHat(coreOS bool) system {
	redHat := fedora
	redHat.coreOS = coreOS
	if coreOS {
		// CRI-O mounts the host's subscription.
		return redHat
	}
	redHat.subscription = []hostMount{
		{"subscription-entitlement", "/etc/pki/entitlement", "Directory", "/run/secrets/etc-pki-entitlement"},
		{"subscription-repo", "/etc/yum.repos.d/redhat.repo", "File", "/run/secrets/redhat.repo"},
		{"subscription-rhsm", "/etc/rhsm", "Directory", "/run/secrets/rhsm"},
	}
	return redHat
}

// osID returns the operating system of an image tag, without its version.
func osID(tag string) string { return strings.TrimRight(tag, "0123456789.") }

func repoConfig(in operand.Input) string { return string(in.Spec.Driver.RepoConfig.ConfigMapName) }

func certConfig(in operand.Input) string { return string(in.Spec.Driver.CertConfig.Name) }

// hostMounts returns the files of the host that the driver container reads.
func hostMounts(in operand.Input, pool nodeinfo.Pool) []hostMount {
	system := systems[osID(pool.OSTag)]
	switch {
	case pool.Kernel != "" && system.hostModules:
		return []hostMount{{"host-lib-modules", "/lib/modules", "Directory", "/run/host/lib/modules"}}
	// The driver toolkit has the packages, and CRI-O mounts the host's subscription.
	case pool.Kernel != "" || pool.CoreOS != "" || repoConfig(in) != "" && !system.keepsSubscription:
		return nil
	}
	return system.subscription
}

// providedVolumes returns the volumes of hostMounts that the container runtime of every node mounts itself: CRI-O
// mounts the host's subscription of Red Hat, if it has one.
func providedVolumes(in operand.Input, pool nodeinfo.Pool) []string {
	if !in.OnlyCRIO() || osID(pool.OSTag) != "rhel" {
		return nil
	}
	var names []string
	for _, mount := range hostMounts(in, pool) {
		names = append(names, mount.Name)
	}
	return names
}

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
)

// ProgramOptions configures a process of an operator that is not this one.
type ProgramOptions struct {
	// Binary is the path of its program, and Args are all of its arguments.
	Binary string
	Args   []string
	// Kubeconfig has its credentials.
	Kubeconfig string
	// Env are further variables, as NAME=value. Only PATH and HOME are inherited.
	Env []string
	// Dir is its working directory; the default is that of the test.
	Dir string
	// LogFile receives the output, appended.
	LogFile string
	// Files are the absolute paths that the program reads, and the folders that it finds there; nil for none. Its root
	// then has everything that this one has, except in the top folders of these paths, such as /opt, and in that of
	// LogFile: program, kubeconfig and the given folders must not be below those. Linux only, and for another user than
	// root only with user namespaces.
	Files map[string]string
}

// StartProgram starts an operator that is not this one. It does not wait: how such a program reports that it is ready
// is unknown.
func StartProgram(opts ProgramOptions) (*Operator, error) {
	cmd := exec.Command(opts.Binary, opts.Args...)
	if len(opts.Files) > 0 {
		cmd = withFiles(opts)
	}
	cmd.Dir = opts.Dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "KUBECONFIG=" + opts.Kubeconfig,
	}, opts.Env...)
	p, err := startProcess(cmd, opts.LogFile)
	if err != nil {
		return nil, err
	}
	return &Operator{LogFile: opts.LogFile, process: p}, nil
}

// newRoot makes a root directory in the folder $1 with all top folders but those in $2, mounts folders in it, given as
// pairs until "--", and becomes the program that follows, there.
const newRoot = `set -e
root=$1 hidden=$2
shift 2
mount -t tmpfs tmpfs "$root"
for folder in /*; do
  case " $hidden " in *" $folder "*) continue ;; esac
  if [ -L "$folder" ]; then
    cp -P "$folder" "$root$folder"
  elif [ -d "$folder" ]; then
    mkdir "$root$folder"
    mount --rbind "$folder" "$root$folder"
  fi
done
while [ "$1" != -- ]; do
  mkdir -p "$root$2"
  mount --rbind "$1" "$root$2"
  shift 2
done
shift
exec chroot "$root" "$@"`

// withFiles returns the command of a program that has Files, which runs in a mount namespace. The new root is mounted
// over the folder of its log, in that namespace alone. The process is that of the program: shell and chroot become it.
func withFiles(opts ProgramOptions) *exec.Cmd {
	args := []string{"--mount"}
	if os.Geteuid() != 0 {
		args = append(args, "--user", "--map-root-user")
	}
	var mounts, hidden []string
	for path, folder := range opts.Files {
		mounts = append(mounts, folder, path)
		top, _, _ := strings.Cut(path[1:], "/")
		hidden = append(hidden, "/"+top)
	}
	args = append(args, "sh", "-c", newRoot, "sh", filepath.Dir(opts.LogFile), strings.Join(hidden, " "))
	args = append(append(args, mounts...), "--", opts.Binary)
	return exec.Command("unshare", append(args, opts.Args...)...)
}

// ReadObjects returns the objects of a file with YAML documents.
func ReadObjects(path string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	var objects []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("read objects of %s: %w", path, err)
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}

// AddAdministrator creates a namespace unless it exists, and a ServiceAccount in it that has all permissions.
func (c *Cluster) AddAdministrator(ctx context.Context, namespace, name string) error {
	client, err := kubernetes.NewForConfig(c.SimulatorConfig)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	_, err = client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create service account %s/%s: %w", namespace, name, err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bind %s/%s to all permissions: %w", namespace, name, err)
	}
	return nil
}

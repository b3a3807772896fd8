package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"syscall"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // The authentication of kubeconfigs that kubectl supports.
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
)

// fieldManager owns the fields that commands write.
const fieldManager = "kubectl-gpu"

// errNoCluster is the error without a kubeconfig, outside of a pod.
var errNoCluster = errors.New("no cluster is configured: set KUBECONFIG, or give --kubeconfig or --server")

// shownFlags are the flags of a connection that the help of a command has. kubectl options describes the others.
var shownFlags = []string{"as", "context", "kubeconfig", "request-timeout"}

// connection is how commands reach the cluster, as kubectl does: by kubeconfig and flags, or else by the service
// account of the pod that this program runs in.
type connection struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// addFlags adds the flags of kubectl that choose the cluster and the user.
func (c *connection) addFlags(flags *pflag.FlagSet) {
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	// What a namespace is for differs between commands, and Kubernetes has no basic authentication.
	names.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{}
	names.AuthOverrideFlags.Username, names.AuthOverrideFlags.Password = clientcmd.FlagInfo{}, clientcmd.FlagInfo{}
	names.AuthOverrideFlags.Impersonate.Description = "user to impersonate"
	names.CurrentContext.Description = "context of the kubeconfig"
	names.Timeout.Description = "how long to wait for an answer of the API server, such as 30s; 0 for no limit"
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	clientcmd.BindOverrideFlags(&c.overrides, own, names)
	own.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file (default: as kubectl)")
	own.VisitAll(func(flag *pflag.Flag) { flag.Hidden = !slices.Contains(shownFlags, flag.Name) })
	flags.AddFlagSet(own)
}

// open returns a session with the cluster. It asks nothing yet.
func (c *connection) open() (*session, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	chosen := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides)
	config, err := chosen.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errNoCluster
	}
	if err != nil {
		return nil, err
	}
	if err := c.override(config); err != nil {
		return nil, err
	}
	namespace, _, err := chosen.Namespace()
	if err != nil {
		return nil, err
	}
	asked, err := newSession(config, namespace)
	if err != nil {
		return nil, err
	}
	asked.context, err = c.contextOf(chosen)
	return asked, err
}

// contextOf returns the name of the context; empty where none names the cluster, as in a pod.
func (c *connection) contextOf(chosen clientcmd.ClientConfig) (string, error) {
	if c.overrides.Context.Cluster != "" || c.overrides.ClusterInfo.Server != "" {
		return "", nil
	}
	raw, err := chosen.RawConfig()
	return cmp.Or(c.overrides.CurrentContext, raw.CurrentContext), err
}

// override sets what client-go takes from the flags only with a kubeconfig: in a pod, a command must not act as the
// account of the pod where it is to act as another user.
func (c *connection) override(config *rest.Config) error {
	as := &c.overrides.AuthInfo
	if as.Impersonate != "" || as.ImpersonateUID != "" || len(as.ImpersonateGroups) > 0 {
		config.Impersonate.UserName, config.Impersonate.UID = as.Impersonate, as.ImpersonateUID
		config.Impersonate.Groups = as.ImpersonateGroups
	}
	var err error
	if c.overrides.Timeout != "" {
		config.Timeout, err = clientcmd.ParseTimeout(c.overrides.Timeout)
	}
	return err
}

// session reads and writes the objects of a cluster.
type session struct {
	// core reads protobuf, which takes a fraction of the time. The clients of all groups would take some MB more.
	core     corev1client.CoreV1Interface
	objects  dynamic.Interface
	metadata metadata.Interface
	// mapper finds the resources of names as kubectl takes them.
	mapper meta.RESTMapper
	// namespace is that of the context, and context its name; empty if the flags choose the cluster without one.
	namespace, context string
}

func newSession(config *rest.Config, namespace string) (*session, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = fieldManager + "/" + version.Version
	config.QPS = -1 // The API server bounds what one user asks for.
	config.WarningHandler = rest.NoWarnings{}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	binary := rest.CopyConfig(config)
	binary.ContentType = runtime.ContentTypeProtobuf
	binary.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	core, ofCore := corev1client.NewForConfigAndClient(binary, client)
	objects, ofObjects := dynamic.NewForConfigAndClient(config, client)
	names, ofNames := metadata.NewForConfigAndClient(config, client)
	resources, ofResources := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err := errors.Join(ofCore, ofObjects, ofNames, ofResources); err != nil {
		return nil, err
	}
	return &session{
		core: core, objects: objects, metadata: names, namespace: namespace,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(resources)),
	}, nil
}

// read returns the answer to a GET of a path, of at most limit bytes; cut reports that there is more. accept is the
// header of that name.
func (s *session) read(
	ctx context.Context, path string, query url.Values, accept string, limit int64,
) (text []byte, cut bool, err error) {
	request := s.core.RESTClient().Get().AbsPath(path).SetHeader("Accept", accept)
	for name, values := range query {
		for _, value := range values {
			request.Param(name, value)
		}
	}
	answer, err := request.Stream(ctx)
	if err != nil {
		return nil, false, said(err)
	}
	defer answer.Close()
	text, err = io.ReadAll(io.LimitReader(answer, limit+1))
	if err != nil {
		return nil, false, fmt.Errorf("reading %s: %w", path, err)
	}
	if int64(len(text)) > limit {
		return text[:limit], true, nil
	}
	return text, false, nil
}

// errConflict is what the answer of an API server is that an object has changed meanwhile.
var errConflict = errors.New("the object has changed")

// answer is an error that the API server has returned, with the words of kubectl.
type answer struct {
	error
	reason metav1.StatusReason
}

func (a answer) Unwrap() error { return errors.Unwrap(a.error) }

// Is reports whether the target is errConflict, and the answer one: also among errors that are joined.
func (a answer) Is(target error) bool {
	return target == errConflict && a.reason == metav1.StatusReasonConflict
}

// unreachable is the error of a call that has reached no API server.
type unreachable struct{ error }

func (u unreachable) Unwrap() error { return u.error }

// said returns an error of a call in the words of kubectl; nil for nil.
func said(err error) error {
	var call *url.Error
	switch reason := apierrors.ReasonForError(err); {
	case err == nil:
		return nil
	case reason == metav1.StatusReasonUnauthorized:
		return fmt.Errorf("you must be logged in to the server (%w)", err)
	case reason != metav1.StatusReasonUnknown:
		return answer{fmt.Errorf("Error from server (%s): %w", reason, err), reason} //nolint:staticcheck // As of kubectl.
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), !errors.As(err, &call):
		return err
	case errors.Is(err, syscall.ECONNREFUSED):
		return unreachable{fmt.Errorf("the connection to the server %s was refused - did you specify the right host or "+
			"port? (%w)", hostOf(call), call.Err)}
	}
	return unreachable{fmt.Errorf("unable to connect to the server: %w", call.Err)}
}

// hostOf returns host and port of a call.
func hostOf(call *url.Error) string {
	asked, err := url.Parse(call.URL)
	if err != nil {
		return call.URL
	}
	return asked.Host
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Errors have the words of kubectl, and stay recognizable.
func TestErrorsOfTheCluster(t *testing.T) {
	g, server := NewWithT(t), newAPIServer(t)
	server.refused = true
	s := server.session(t)
	read := func(s *session) error {
		_, err := list(t.Context(), s.core.Nodes().List, metav1.ListOptions{}, func(*corev1.Node) {})
		return err
	}
	err := read(s)
	g.Expect(err).To(MatchError("Error from server (Forbidden): refused"))
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue())
	_, _, err = s.read(t.Context(), "/api/v1/nodes", nil, "application/json", 10)
	g.Expect(err).To(MatchError("Error from server (Forbidden): refused"))
	unauthorized := said(apierrors.NewUnauthorized("Unauthorized"))
	g.Expect(unauthorized).To(MatchError("you must be logged in to the server (Unauthorized)"))
	g.Expect(said(context.Canceled)).To(MatchError(context.Canceled))

	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	s, err = newSession(&rest.Config{Host: closed.URL}, "")
	g.Expect(err).NotTo(HaveOccurred())
	host := strings.TrimPrefix(closed.URL, "http://")
	g.Expect(read(s)).To(MatchError("the connection to the server " + host +
		" was refused - did you specify the right host or port? (dial tcp " + host + ": connect: connection refused)"))
	s, err = newSession(&rest.Config{Host: "http://nowhere.invalid"}, "")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read(s)).To(MatchError(HavePrefix("unable to connect to the server: dial tcp: lookup nowhere.invalid")))
}

// An answer is cut at the limit; paths are below that of the server, as of a proxy for many clusters.
func TestRead(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL.Path, " ", r.URL.Query().Get("tailLines"), " ", r.Header.Get("Accept"))
	}))
	defer server.Close()
	s, err := newSession(&rest.Config{Host: server.URL + "/k8s/clusters/c-1"}, "")
	g.Expect(err).NotTo(HaveOccurred())
	const want = "/k8s/clusters/c-1/version 5 text/plain"
	for limit, want := range map[int64]string{int64(len(want)): want, int64(len(want)) - 1: want[:len(want)-1]} {
		text, cut, err := s.read(t.Context(), "/version", url.Values{"tailLines": {"5"}}, "text/plain", limit)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(text)).To(Equal(want))
		g.Expect(cut).To(Equal(limit < int64(len("/k8s/clusters/c-1/version 5 text/plain"))))
	}
}

// A command acts as another user also where client-go would take the account of a pod as it is.
func TestImpersonation(t *testing.T) {
	g, config := NewWithT(t), &rest.Config{}
	c, flags := connection{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	c.addFlags(flags)
	g.Expect(c.override(config)).To(Succeed())
	g.Expect(config).To(Equal(&rest.Config{}))
	given := []string{"--as=a", "--as-group=b", "--as-group=c", "--as-uid=d", "--request-timeout=5s"}
	g.Expect(flags.Parse(given)).To(Succeed())
	g.Expect(c.override(config)).To(Succeed())
	g.Expect(config.Impersonate).To(Equal(rest.ImpersonationConfig{UserName: "a", Groups: []string{"b", "c"}, UID: "d"}))
	g.Expect(config.Timeout).To(Equal(5 * time.Second))
}

// A list is read in pages, and has the version of the last.
func TestListInPages(t *testing.T) {
	g, asked := NewWithT(t), []string{}
	page := func(_ context.Context, options metav1.ListOptions) (*corev1.NodeList, error) {
		asked = append(asked, fmt.Sprint(options.Limit, options.Continue, options.LabelSelector))
		found := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
		if options.Continue == "" {
			found.Continue = "more"
		}
		found.Items = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a" + options.Continue}}}
		return found, nil
	}
	names := []string{}
	version, err := list(t.Context(), page, metav1.ListOptions{LabelSelector: "x=y"},
		func(node *corev1.Node) { names = append(names, node.Name) })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version).To(Equal("7"))
	g.Expect(names).To(Equal([]string{"a", "amore"}))
	g.Expect(asked).To(Equal([]string{"50x=y", "50morex=y"}))
}

// A watch ends with the connection, or when the API server no longer has the version.
func TestWatch(t *testing.T) {
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	gone := &metav1.Status{Reason: metav1.StatusReasonExpired}
	for name, end := range map[string]func(*apiwatch.FakeWatcher){
		"connection": func(w *apiwatch.FakeWatcher) { w.Stop() },
		"version":    func(w *apiwatch.FakeWatcher) { w.Error(gone) },
	} {
		g, found, version := NewWithT(t), map[string]bool{}, ""
		events := apiwatch.NewFake()
		go func() {
			events.Add(node("a"))
			events.Delete(node("b"))
			end(events)
		}()
		err := watch(t.Context(), func(_ context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			version = options.ResourceVersion
			return events, nil
		}, metav1.ListOptions{}, "7", func(deleted bool, n *corev1.Node) { found[n.Name] = deleted })
		g.Expect(err).NotTo(HaveOccurred(), name)
		g.Expect(version).To(Equal("7"))
		g.Expect(found).To(Equal(map[string]bool{"a": false, "b": true}), name)
	}
	for code, want := range map[metav1.StatusReason]types.GomegaMatcher{
		metav1.StatusReasonExpired: Succeed(), metav1.StatusReasonGone: Succeed(),
		metav1.StatusReasonForbidden: MatchError(HavePrefix("Error from server (Forbidden)")),
	} {
		err := watch(t.Context(), func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Reason: code}}
		}, metav1.ListOptions{}, "7", func(bool, *corev1.Node) {})
		NewWithT(t).Expect(err).To(want, string(code))
	}
}

// The flags of kubectl choose cluster and user; the help has those that are used most.
func TestConnection(t *testing.T) {
	g, server := NewWithT(t), newAPIServer(t)
	t.Setenv("KUBECONFIG", server.kubeconfig(t))
	open := func(args ...string) (*session, error) {
		c, flags := connection{}, pflag.NewFlagSet("", pflag.ContinueOnError)
		c.addFlags(flags)
		g.Expect(flags.Parse(args)).To(Succeed())
		return c.open()
	}
	s, err := open("--context", "c", "--as", "someone", "--request-timeout", "5s")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.namespace).To(Equal("team-a"))
	_, err = open("--context", "other")
	g.Expect(err).To(MatchError(`context "other" does not exist`))
	s, err = open("--request-timeout", "soon")
	g.Expect(err).To(HaveOccurred())
	g.Expect(s).To(BeNil())
	s, err = open("-s", server.url, "--token", "t")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.namespace).To(Equal("default"))
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	_, err = open()
	g.Expect(err).To(MatchError(errNoCluster))
	help := kubectlGPU("", "status", "--help").out
	g.Expect(help).To(And(ContainSubstring("--request-timeout"), Not(ContainSubstring("--tls-server-name"))))
}

func TestColours(t *testing.T) {
	g := NewWithT(t)
	g.Expect(newPalette(&bytes.Buffer{}).red("x")).To(Equal("x"), "no terminal")
	g.Expect(palette{on: true}.red("x")).To(Equal("\x1b[31mx\x1b[0m"))
	plain := overviewText(someNodes(), shownAt, false, palette{})
	coloured := overviewText(someNodes(), shownAt, false, palette{on: true})
	g.Expect(coloured).NotTo(Equal(plain))
	for _, code := range []string{"\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"} {
		coloured = strings.ReplaceAll(coloured, code, "")
	}
	g.Expect(coloured).To(Equal(plain), "colours move no column")
}

// kubectl runs the script with what the user has typed.
func TestCompletion(t *testing.T) {
	g := NewWithT(t)
	g.Expect(kubectlGPU("", "completion", "kubectl").out).To(Equal(script))
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		g.Expect(kubectlGPU("", "completion", shell).out).To(ContainSubstring("kubectl-gpu"))
	}
	got := kubectlGPU("", "__complete", "top", "nodes", "--sort-by", "")
	g.Expect(got.out).To(HavePrefix("name\nutilization\nmemory\npower\ntemperature\n"))
	g.Expect(kubectlGPU("", "__complete", "d").out).To(HavePrefix("diff\t"))
}

// Each command has examples, and its usage names it as users call it.
func TestHelp(t *testing.T) {
	for _, command := range rootCommand().Commands() {
		if command.Name() == "completion" {
			continue // Of cobra; the texts of the shells are its own.
		}
		got := kubectlGPU("", command.Name(), "--help")
		NewWithT(t).Expect(got.out).To(And(ContainSubstring("Examples:\n  kubectl g"), ContainSubstring("kubectl gpu "+
			command.Name())), command.Name())
	}
}

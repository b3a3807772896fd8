//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Services makes the TCP ports of Services work for pods and for this program, like kube-proxy, whose programs are not
// on every machine. It accepts each connection itself and forwards it to a ready endpoint; so the endpoint does not see
// the address of the client.
type Services struct {
	slices    listers.EndpointSliceLister
	lock      sync.Mutex
	listeners map[netip.AddrPort]net.Listener
	refused   atomic.Bool
}

// Refuse ends each new connection to a Service, or no more, as if no endpoint answered. Those that exist stay.
func (s *Services) Refuse(all bool) { s.refused.Store(all) }

// StartServices serves the Services of a cluster until the context ends.
func StartServices(ctx context.Context, cfg *rest.Config) (*Services, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	s := &Services{
		slices:    factory.Discovery().V1().EndpointSlices().Lister(),
		listeners: map[netip.AddrPort]net.Listener{},
	}
	services := factory.Core().V1().Services().Informer()
	if _, err := services.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { s.change(nil, object) },
		UpdateFunc: s.change,
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			s.change(object, nil)
		},
	}); err != nil {
		return nil, fmt.Errorf("watch services: %w", err)
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("watch %s: %w", kind, ctx.Err())
		}
	}
	context.AfterFunc(ctx, s.close)
	return s, nil
}

// change opens the ports that the new state of a Service has and the old one had not, and closes the others.
func (s *Services) change(before, after any) {
	old, wanted := servicePorts(before), servicePorts(after)
	s.lock.Lock()
	defer s.lock.Unlock()
	for at := range old {
		if _, kept := wanted[at]; kept {
			continue
		}
		if listener, there := s.listeners[at]; there {
			_ = listener.Close()
			delete(s.listeners, at)
		}
	}
	for at, port := range wanted {
		if _, there := s.listeners[at]; there {
			continue
		}
		listener, err := net.Listen("tcp", at.String())
		if err != nil {
			utilruntime.HandleError(fmt.Errorf("listen for service %s/%s: %w", port.namespace, port.service, err))
			continue
		}
		s.listeners[at] = listener
		go s.serve(listener, port)
	}
}

// servicePort names one port of a Service.
type servicePort struct{ namespace, service, port string }

func servicePorts(object any) map[netip.AddrPort]servicePort {
	service, ok := object.(*corev1.Service)
	if !ok {
		return nil
	}
	address, err := netip.ParseAddr(service.Spec.ClusterIP)
	if err != nil {
		return nil // One without an address.
	}
	ports := map[netip.AddrPort]servicePort{}
	for _, port := range service.Spec.Ports {
		if port.Protocol == corev1.ProtocolTCP {
			ports[netip.AddrPortFrom(address, uint16(port.Port))] = servicePort{service.Namespace, service.Name, port.Name}
		}
	}
	return ports
}

func (s *Services) serve(listener net.Listener, port servicePort) {
	for {
		connection, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			utilruntime.HandleError(fmt.Errorf("accept for service %s/%s: %w", port.namespace, port.service, err))
			return
		}
		go s.pass(connection, port)
	}
}

// pass connects a client with the first endpoint that answers; without one, the client's connection ends.
func (s *Services) pass(caller net.Conn, port servicePort) {
	defer func() { _ = caller.Close() }()
	if s.refused.Load() {
		return
	}
	for _, endpoint := range s.endpoints(port) {
		connection, err := net.Dial("tcp", endpoint)
		if err != nil {
			continue
		}
		defer func() { _ = connection.Close() }()
		var group sync.WaitGroup
		group.Go(func() { flow(connection, caller) })
		group.Go(func() { flow(caller, connection) })
		group.Wait()
		return
	}
}

// flow copies one direction and signals its end; a failure ends it as well.
func flow(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
}

func (s *Services) endpoints(port servicePort) []string {
	of := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: port.service})
	slices, err := s.slices.EndpointSlices(port.namespace).List(of)
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("list endpoints of service %s/%s: %w", port.namespace, port.service, err))
		return nil
	}
	var found []string
	for _, slice := range slices {
		for _, candidate := range slice.Ports {
			if candidate.Name == nil || *candidate.Name != port.port || candidate.Port == nil {
				continue
			}
			found = append(found, ready(slice.Endpoints, *candidate.Port)...)
		}
	}
	return found
}

func ready(endpoints []discoveryv1.Endpoint, port int32) []string {
	var found []string
	for _, endpoint := range endpoints {
		if condition := endpoint.Conditions.Ready; condition != nil && !*condition {
			continue
		}
		for _, address := range endpoint.Addresses {
			found = append(found, net.JoinHostPort(address, fmt.Sprint(port)))
		}
	}
	return found
}

func (s *Services) close() {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, listener := range s.listeners {
		_ = listener.Close()
	}
	clear(s.listeners)
}

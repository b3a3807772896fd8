//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	claims "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// prepared is what prepareClaim prints: the CDI devices of each device of the claim.
type prepared map[string][]string

// prepareClaim is the part of a kubelet that serves resource claims, for one call. Its arguments are the socket by
// which a DRA driver registers, prepare or unprepare, and the namespace, name and UID of a claim.
func prepareClaim(args []string) error {
	const wanted = 5
	if len(args) != wanted {
		return errors.New("needs a socket, prepare or unprepare, and a claim's namespace, name and UID")
	}
	ctx, claim := context.Background(), &claims.Claim{Namespace: args[2], Name: args[3], Uid: args[4]}
	driver, err := accept(ctx, args[0])
	if err != nil {
		return fmt.Errorf("register the driver: %w", err)
	}
	if args[1] == "unprepare" {
		response, err := driver.NodeUnprepareResources(ctx, &claims.NodeUnprepareResourcesRequest{
			Claims: []*claims.Claim{claim},
		})
		if err != nil {
			return err
		}
		return refusal(response.Claims[claim.Uid].GetError())
	}
	response, err := driver.NodePrepareResources(ctx, &claims.NodePrepareResourcesRequest{
		Claims: []*claims.Claim{claim},
	})
	if err != nil {
		return err
	}
	found := prepared{}
	for _, device := range response.Claims[claim.Uid].GetDevices() {
		found[device.DeviceName] = device.CdiDeviceIds
	}
	return errors.Join(refusal(response.Claims[claim.Uid].GetError()), json.NewEncoder(os.Stdout).Encode(found))
}

// accept reads who serves the socket, registers it, and connects to it.
func accept(ctx context.Context, socket string) (claims.DRAPluginClient, error) {
	connection, err := dial(socket)
	if err != nil {
		return nil, err
	}
	plugin := registration.NewRegistrationClient(connection)
	info, err := plugin.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return nil, err
	}
	if info.Type != registration.DRAPlugin {
		return nil, fmt.Errorf("%s is of type %s", info.Name, info.Type)
	}
	registered := &registration.RegistrationStatus{PluginRegistered: true}
	if _, err := plugin.NotifyRegistrationStatus(ctx, registered); err != nil {
		return nil, err
	}
	if connection, err = dial(info.Endpoint); err != nil {
		return nil, err
	}
	return claims.NewDRAPluginClient(connection), nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// refusal is the error that a driver returns for a claim; nil for none.
func refusal(message string) error {
	if message == "" {
		return nil
	}
	return errors.New(message)
}

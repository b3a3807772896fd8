//go:build linux

package node

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// busSocket is where a host with systemd has the system bus.
const busSocket = "/run/dbus/system_bus_socket"

// ServeBus serves the system bus of a host with systemd on the running machine, until stop is called. A client can
// connect; whatever it asks, the answer is its name: the machine has no services of systemd.
func (m *Machine) ServeBus() (stop func() error, err error) {
	return ServeBus(m.Running(""))
}

// ServeBus does so below the root of a host.
func ServeBus(root string) (stop func() error, err error) {
	path := filepath.Join(root, busSocket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the system bus: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("serve the system bus: %w", err)
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = answer(client)
				_ = client.Close()
			}()
		}
	}()
	return func() error { return errors.Join(listener.Close(), os.RemoveAll(filepath.Dir(path))) }, nil
}

// answer lets a client log in and answers each of its messages. It returns once the client has left.
func answer(client net.Conn) error {
	reader := bufio.NewReader(client)
	if err := logIn(reader, client); err != nil {
		return err
	}
	for {
		// The lengths of body and fields, and the serial between them.
		const fixed, bodyAt, serialAt, fieldsAt = 16, 4, 8, 12
		header := make([]byte, fixed)
		if _, err := io.ReadFull(reader, header); err != nil {
			return err
		}
		fields := int(binary.LittleEndian.Uint32(header[fieldsAt:]))
		body := int(binary.LittleEndian.Uint32(header[bodyAt:]))
		if _, err := reader.Discard((fields+7)/8*8 + body); err != nil {
			return err
		}
		if _, err := client.Write(welcome(binary.LittleEndian.Uint32(header[serialAt:]))); err != nil {
			return err
		}
	}
}

// logIn answers the lines with which a client begins, without a check who it is.
func logIn(reader *bufio.Reader, client io.Writer) error {
	if _, err := reader.ReadByte(); err != nil {
		return err
	}
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return err
		}
		answer := "ERROR"
		switch line = strings.TrimSpace(line); {
		case line == "AUTH":
			answer = "REJECTED EXTERNAL"
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			answer = "OK 0123456789abcdef0123456789abcdef"
		case line == "BEGIN":
			return nil
		}
		if _, err := io.WriteString(client, answer+"\r\n"); err != nil {
			return err
		}
	}
}

// welcome is the answer to the message with this serial, in the wire format of D-Bus: the name of the client.
func welcome(serial uint32) []byte {
	const name = ":1.1"
	body := append(binary.LittleEndian.AppendUint32(nil, uint32(len(name))), name+"\x00"...)
	const isReply, replySerial, signature = 2, 5, 8
	fields := binary.LittleEndian.AppendUint32([]byte{replySerial, 1, 'u', 0}, serial)
	fields = append(fields, signature, 1, 'g', 0, 1, 's', 0)
	message := binary.LittleEndian.AppendUint32([]byte{'l', isReply, 0, 1}, uint32(len(body)))
	message = binary.LittleEndian.AppendUint32(message, 1)
	message = append(binary.LittleEndian.AppendUint32(message, uint32(len(fields))), fields...)
	for len(message)%8 != 0 {
		message = append(message, 0)
	}
	return append(message, body...)
}

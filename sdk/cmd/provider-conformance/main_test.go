package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// provider says what it is, and no more.
type provider struct {
	pb.UnimplementedProviderInfoServer

	name string
}

func (p provider) GetInfo(context.Context, *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	return &pb.GetInfoResponse{
		Name: p.name, Version: "1.0.0", ProtocolVersions: []string{pb.ProtocolVersion},
		Kinds: []*pb.Kind{{ApiVersion: "provider.example.com/v1", Kind: "Memory", Service: pb.Service_SERVICE_SECRET_STORE}},
	}, nil
}

// serve serves it on a socket, and writes the target.
func serve(t *testing.T) (dir string) {
	t.Helper()

	// A socket's path is short.
	dir, err := os.MkdirTemp("", "kit") //nolint:usetesting // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	listener, err := net.Listen("unix", filepath.Join(dir, "p.sock"))
	if err != nil {
		t.Fatal(err)
	}

	server := grpc.NewServer()
	pb.RegisterProviderInfoServer(server, provider{name: "memory"})
	healthpb.RegisterHealthServer(server, health.NewServer())

	go func() { _ = server.Serve(listener) }()

	t.Cleanup(server.Stop)

	target := fmt.Sprintf("address: unix://%s/p.sock\nconfig: {apiVersion: provider.example.com/v1, kind: Memory, namespace: team-a, name: backend, uid: u}\n", dir)
	if err := os.WriteFile(filepath.Join(dir, "target.yaml"), []byte(target), 0o600); err != nil {
		t.Fatal(err)
	}

	return dir
}

func TestExitStatus(t *testing.T) {
	dir := serve(t)
	target := filepath.Join(dir, "target.yaml")

	for _, test := range []struct {
		name, why string
		args      []string
		code      int
		want      string
	}{
		{"version", "a report names it", []string{"--version"}, 0, "provider-conformance 0.0.0-dev (unknown)"},
		{"help", "asking for help is no failure", []string{"--help"}, 0, "provider-conformance [flags] target.yaml"},
		{"list", "authors read what is tested before they run it", []string{"--list"}, 0, "read.missing-key-is-not-found\n    NOT_FOUND may delete"},
		{"what holds", "0 says that nothing failed", []string{"--run", "^identity|^health.is-served", target}, 0, "5 passed, 0 failed"},
		{"what does not hold", "it has no GetStatus", []string{"--run", "^health", target}, 1, "fail          health.status-is-reported: GetStatus"},
		{"no target", "2 says that nothing was tested", nil, 2, "name one file"},
		{"no such target", "likewise", []string{filepath.Join(dir, "none.yaml")}, 2, "cannot read the target"},
		{"an unknown flag", "a flag of a newer version must not be ignored", []string{"--only=x", target}, 2, "flag provided but not defined: -only"},
		{"no expression", "the flag is named", []string{"--run", "(", target}, 2, "--run: "},
		{"no such test", "nothing that was tested is not conformant", []string{"--run", "^none$", target}, 2, `no test has an id that matches "^none$"`},
		{"a report that cannot be written", "a caller that expects the report must see the failure", []string{"--run", "^identity", "--report-json", filepath.Join(dir, "none", "r"), target}, 2, "--report-json: "},
		{"likewise in Markdown", "the flag is named", []string{"--run", "^identity", "--report-markdown", filepath.Join(dir, "none", "r"), target}, 2, "--report-markdown: "},
		{"output that cannot be written", "likewise", []string{"--provider-output", filepath.Join(dir, "none", "r"), target}, 2, "--provider-output: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer

			if code := run(t.Context(), test.args, &out, &out); code != test.code || !strings.Contains(out.String(), test.want) {
				t.Errorf("%s: exit %d; want %d and %q in:\n%s", test.why, code, test.code, test.want, out.String())
			}
		})
	}
}

func TestReports(t *testing.T) {
	dir := serve(t)
	asJSON, markdown := filepath.Join(dir, "report.json"), filepath.Join(dir, "report.md")

	var out bytes.Buffer
	if code := run(t.Context(), []string{"--run", "^identity", "--report-json", asJSON, "--report-markdown", markdown, filepath.Join(dir, "target.yaml")}, &out, &out); code != 0 {
		t.Fatalf("exit %d:\n%s", code, out.String())
	}

	text, err := os.ReadFile(asJSON)
	if err != nil {
		t.Fatal(err)
	}

	var report kit.Report
	if err := json.Unmarshal(text, &report); err != nil || report.Provider.Name != "memory" || report.ReportVersion != kit.ReportVersion || len(report.Tests) != 4 {
		t.Errorf("the JSON report: %v, %+v", err, report)
	}

	text, err = os.ReadFile(markdown)
	if err != nil || !strings.Contains(string(text), "# Conformance of memory 1.0.0: conformant") {
		t.Errorf("the Markdown report: %v\n%s", err, text)
	}
}

package imports

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func graphOf(packages ...Package) Graph {
	graph := make(Graph)
	for _, p := range packages {
		graph[p.Path] = p
	}
	return graph
}

func of(module, folder string, imports ...string) Package {
	return Package{Path: module + folder, Module: module, Imports: imports}
}

func TestEachRuleCanFail(t *testing.T) {
	const (
		api     = modulePrefix + "api"
		cli     = modulePrefix + "cli"
		sdk     = modulePrefix + "sdk"
		core    = modulePrefix + "core"
		fake    = modulePrefix + "providers/fake"
		vault   = modulePrefix + "providers/vault"
		e2e     = modulePrefix + "e2e"
		release = modulePrefix + "release"
		testkit = modulePrefix + "testkit"
	)
	for _, test := range []struct {
		why   string
		graph Graph
		want  []string
	}{
		{
			why: "what the design draws is allowed, and standard library and test tools are for all",
			graph: graphOf(
				of(api, "", "k8s.io/apimachinery/pkg/runtime", "context"),
				of(sdk, "", api, "example.com/third"),
				of(core, "", api, "example.com/third"),
				of(vault, "", sdk, api, "github.com/hashicorp/vault/api"),
				of(cli, "", api, sdk, core, "example.com/third"),
				of(e2e, "", core, vault, cli),
				of("k8s.io/apimachinery", "/pkg/runtime", "sigs.k8s.io/json"),
				of("sigs.k8s.io/json", ""),
				of("example.com/third", ""),
				of("github.com/hashicorp/vault/api", ""),
				Package{Path: "context"},
				Package{Path: api + "/meta", Module: api, TestImports: []string{"github.com/google/go-cmp/cmp"}},
				of("github.com/google/go-cmp", "/cmp"),
			),
		},
		{
			why: "everybody pays for what api imports",
			graph: graphOf(
				of(api, "", "sigs.k8s.io/controller-runtime/pkg/scheme"),
				of("sigs.k8s.io/controller-runtime", "/pkg/scheme"),
			),
			want: []string{api + " may not import sigs.k8s.io/controller-runtime/pkg/scheme"},
		},
		{
			why:   "api is below everything",
			graph: graphOf(of(api, "", sdk), of(sdk, "")),
			want: []string{
				api + " may not import " + sdk,
				api + " may not depend on module sdk: " + api + " -> " + sdk,
			},
		},
		{
			why:   "a provider author must not get the operator along with the SDK",
			graph: graphOf(of(sdk, "", core), of(core, "")),
			want:  []string{sdk + " may not depend on module core: " + sdk + " -> " + core},
		},
		{
			why:   "the same, by a detour",
			graph: graphOf(of(sdk, "", "example.com/x"), of("example.com/x", "", core), of(core, "")),
			want:  []string{sdk + " may not depend on module core: " + sdk + " -> example.com/x -> " + core},
		},
		{
			why:   "the operator knows no provider",
			graph: graphOf(of(core, "/store", fake), of(fake, "")),
			want:  []string{core + "/store may not depend on module providers/fake: " + core + "/store -> " + fake},
		},
		{
			why: "the operator knows no provider in its tests either: its go.mod would",
			graph: graphOf(
				Package{Path: core, Module: core, TestImports: []string{fake}},
				of(fake, ""),
			),
			want: []string{core + " may not depend on module providers/fake: " + core + " -> " + fake},
		},
		{
			why: "the operator links no backend's SDK, however indirectly, and says so once for each",
			graph: graphOf(
				of(core, "", "example.com/x"),
				of("example.com/x", "", "github.com/hashicorp/vault/api", "github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/smithy-go", "cloud.google.com/go/kms", "github.com/Azure/azure-sdk-for-go/sdk/azcore"),
			),
			want: []string{
				core + " may not depend on github.com/hashicorp/vault: " + core + " -> example.com/x -> github.com/hashicorp/vault/api",
				core + " may not depend on github.com/aws: " + core + " -> example.com/x -> github.com/aws/aws-sdk-go-v2/aws",
				core + " may not depend on cloud.google.com/go: " + core + " -> example.com/x -> cloud.google.com/go/kms",
				core + " may not depend on github.com/Azure: " + core + " -> example.com/x -> github.com/Azure/azure-sdk-for-go/sdk/azcore",
			},
		},
		{
			why:   "a prefix ends with a path element",
			graph: graphOf(of(core, "", "cloud.google.com/gopher")),
		},
		{
			why:   "a provider does not need the operator's code",
			graph: graphOf(of(vault, "", core), of(core, "")),
			want:  []string{vault + " may not depend on module core: " + vault + " -> " + core},
		},
		{
			why:   "a provider does not need another provider's code",
			graph: graphOf(of(vault, "", fake), of(fake, "")),
			want:  []string{vault + " may not depend on module providers/fake: " + vault + " -> " + fake},
		},
		{
			why: "the command line knows no backend, and is no library",
			graph: graphOf(
				of(cli, "", fake, "github.com/hashicorp/vault/api"),
				of(fake, ""),
				of(core, "", cli),
				of("github.com/hashicorp/vault/api", ""),
			),
			want: []string{
				cli + " may not depend on module providers/fake: " + cli + " -> " + fake,
				cli + " may not depend on github.com/hashicorp/vault: " + cli + " -> github.com/hashicorp/vault/api",
				core + " may not depend on module cli: " + core + " -> " + cli,
			},
		},
		{
			why: "the end-to-end tests are no library, not even in tests",
			graph: graphOf(
				Package{Path: vault, Module: vault, TestImports: []string{e2e + "/controlplane"}},
				of(e2e, "/controlplane"),
			),
			want: []string{vault + " may not depend on module e2e: " + vault + " -> " + e2e + "/controlplane"},
		},
		{
			why: "tests of a provider and of the operator may use the test kit, whatever that is built with",
			graph: graphOf(
				Package{Path: vault, Module: vault, TestImports: []string{testkit + "/controlplane"}},
				Package{Path: core, Module: core, TestImports: []string{testkit + "/controlplane"}},
				of(testkit, "/controlplane", release),
				of(release, ""),
			),
		},
		{
			why: "what ships must not contain the test kit, and api needs none",
			graph: graphOf(
				of(vault, "", testkit),
				Package{Path: api, Module: api, TestImports: []string{testkit}},
				of(testkit, ""),
			),
			want: []string{
				api + " may not depend on module testkit: " + api + " -> " + testkit,
				vault + " may not depend on module testkit: " + vault + " -> " + testkit,
			},
		},
		{
			why: "a new module needs a rule, and is reported once",
			graph: graphOf(
				of(modulePrefix+"surprise", "/a"),
				of(modulePrefix+"surprise", "/b"),
			),
			want: []string{"no rule says what module surprise may import"},
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Violations(test.graph, Rules())); diff != "" {
				t.Errorf("Violations() (-want +got):\n%s", diff)
			}
		})
	}
}

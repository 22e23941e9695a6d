package tests

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"
)

// accounts are the ServiceAccounts whose requests are recorded.
var accounts = []string{
	"system:serviceaccount:external-secrets:external-secrets-operator",
	"system:serviceaccount:provider-aws:external-secrets-provider-aws",
	"system:serviceaccount:provider-fake:external-secrets-provider-fake",
	"system:serviceaccount:provider-kubernetes:external-secrets-provider-kubernetes",
	"system:serviceaccount:provider-vault:external-secrets-provider-vault",
	"system:serviceaccount:provider-webhook:external-secrets-provider-webhook",
}

// unrequested are rights that no request shows: the API server asks its
// authorizer about them while it serves another one.
var unrequested = map[string]string{
	"external-secrets.io/externalsecrets/finalizers update":        "blockOwnerDeletion, where the admission plugin OwnerReferencesPermissionEnforcement is on",
	"external-secrets.io/clusterexternalsecrets/finalizers update": "likewise",
}

// auditFlags make the API server record the requests of our own processes.
func auditFlags(dir string) ([]string, error) {
	policy, err := yaml.Marshal(auditv1.Policy{
		TypeMeta:   metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "Policy"},
		OmitStages: []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseStarted},
		Rules:      []auditv1.PolicyRule{{Level: auditv1.LevelMetadata, Users: accounts}, {Level: auditv1.LevelNone}},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot write the audit policy: %w", err)
	}

	file := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(file, policy, 0o600); err != nil {
		return nil, fmt.Errorf("cannot write the audit policy: %w", err)
	}

	return []string{"--audit-policy-file=" + file, "--audit-log-path=" + auditLog(dir)}, nil
}

func auditLog(dir string) string { return filepath.Join(dir, "audit.log") }

// grant is a right as "group/resource verb", and the roles that give it.
type grants map[string][]string

func (g grants) add(role string, rules []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					right := group + "/" + resource + " " + verb
					g[right] = append(g[right], role)
				}
			}
		}
	}
}

// Every right that a process has is used in these tests, and none is missed:
// what is granted and never used is given up. It is the last test, as it judges
// all the others.
func TestEveryRightIsUsed(t *testing.T) {
	if run := flag.Lookup("test.run"); run != nil && run.Value.String() != "" {
		t.Skip("-run leaves tests out: what they would use cannot be told from what nothing uses")
	}

	// The other tests do without the leader election.
	if err := product.StopOperator(); err != nil {
		t.Fatal(err)
	}

	if err := product.StartOperator(t.Context(), append(slices.Clone(operatorFlags), "--enable-leader-election")...); err != nil {
		t.Fatal(err)
	}

	ns := newNamespace(t)
	apply(t, ns, fakeStore+simpleES("app", "store"))
	holds(t, ns, "app", "password", "s3cret")

	// What tests have added to the roles is theirs.
	if err := product.Client.Delete(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "generic-targets"}}); err != nil {
		t.Fatal(err)
	}

	eventually(t, func(context.Context) error {
		if len(grantsOf(t, accounts[0])["example.com/things get"]) > 0 {
			return errors.New("the role of the tests is still there")
		}

		return nil
	})

	used, refused := requests(t)

	for _, account := range accounts {
		granted := grantsOf(t, account)
		if len(granted) == 0 {
			t.Fatalf("%s has no rights at all", account)
		}

		for _, right := range slices.Sorted(maps.Keys(granted)) {
			_, exempt := unrequested[right]
			// A watch lists first where the API server does not stream lists.
			streamed := used[account][strings.TrimSuffix(right, " list")+" watch"] && strings.HasSuffix(right, " list")

			if (used[account][right] || streamed) == exempt {
				t.Errorf("%s: %s: used %t, exempt %t; granted by %s", account, right, used[account][right], exempt, strings.Join(granted[right], ", "))
			}
		}

		// A test takes rights away and gives them: only what is granted now and
		// was refused nonetheless is of interest.
		for _, right := range slices.Sorted(maps.Keys(refused[account])) {
			t.Logf("%s was refused: %s", account, right)
		}

		t.Logf("%s: %d rights", account, len(granted))
	}
}

// requests reads the audit log: the rights that requests have used, and those
// that were refused.
func requests(t *testing.T) (used, refused map[string]map[string]bool) {
	t.Helper()

	file, err := os.Open(auditLog(socketDir))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	used, refused = map[string]map[string]bool{}, map[string]map[string]bool{}
	for _, account := range accounts {
		used[account], refused[account] = map[string]bool{}, map[string]bool{}
	}

	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)

	for lines.Scan() {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}

		if event.ObjectRef == nil || used[event.User.Username] == nil {
			continue
		}

		resource := event.ObjectRef.Resource
		if event.ObjectRef.Subresource != "" {
			resource += "/" + event.ObjectRef.Subresource
		}

		right := event.ObjectRef.APIGroup + "/" + resource + " " + event.Verb
		if event.ResponseStatus != nil && event.ResponseStatus.Code == 403 {
			refused[event.User.Username][right] = true
		} else {
			used[event.User.Username][right] = true
		}
	}

	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}

	return used, refused
}

// grantsOf reads what a ServiceAccount is bound to.
func grantsOf(t *testing.T, account string) grants {
	t.Helper()

	granted := grants{}

	bound := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && account == "system:serviceaccount:"+s.Namespace+":"+s.Name
		})
	}

	var (
		clusterRoles    rbacv1.ClusterRoleList
		clusterBindings rbacv1.ClusterRoleBindingList
		bindings        rbacv1.RoleBindingList
		roles           rbacv1.RoleList
	)

	for _, err := range []error{
		product.Client.List(t.Context(), &clusterRoles), product.Client.List(t.Context(), &clusterBindings),
		product.Client.List(t.Context(), &bindings), product.Client.List(t.Context(), &roles),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	rules := map[string][]rbacv1.PolicyRule{}
	for _, role := range clusterRoles.Items {
		rules["ClusterRole/"+role.Name] = role.Rules
	}

	for _, role := range roles.Items {
		rules["Role/"+role.Namespace+"/"+role.Name] = role.Rules
	}

	for _, binding := range clusterBindings.Items {
		if bound(binding.Subjects) {
			granted.add(binding.RoleRef.Name, rules["ClusterRole/"+binding.RoleRef.Name])
		}
	}

	for _, binding := range bindings.Items {
		switch {
		case !bound(binding.Subjects):
		case binding.RoleRef.Kind == "ClusterRole":
			granted.add(binding.RoleRef.Name, rules["ClusterRole/"+binding.RoleRef.Name])
		default:
			granted.add(binding.RoleRef.Name, rules["Role/"+binding.Namespace+"/"+binding.RoleRef.Name])
		}
	}

	return granted
}

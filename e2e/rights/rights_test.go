// Package rights holds the roles of all processes to what their requests use.
//
//test:outputs
package rights

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/external-secrets/eso/testkit/selection"
	"github.com/external-secrets/eso/testkit/suite"
)

// unrequested are rights that no request shows: the API server asks its
// authorizer about them while it serves another one.
var unrequested = map[string]string{
	"external-secrets.io/externalsecrets/finalizers update":        "blockOwnerDeletion, where the admission plugin OwnerReferencesPermissionEnforcement is on",
	"external-secrets.io/clusterexternalsecrets/finalizers update": "likewise",
}

// Every right that a process has is used by some test of some suite, and none is
// missing: a right that is granted and never used is removed.
func TestEveryRightIsUsed(t *testing.T) {
	folder := os.Getenv(selection.OutputsEnv)
	if folder == "" {
		t.Skip("make test runs this after all suites: it reads which rights they have used")
	}

	files, err := filepath.Glob(filepath.Join(folder, "*", suite.RightsFile))
	if err != nil || len(files) == 0 {
		t.Fatalf("no suite has recorded its rights: %v", err)
	}

	accounts, err := suite.Accounts()
	if err != nil {
		t.Fatal(err)
	}

	used, refused, granted := map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]map[string][]string{}
	for _, account := range accounts {
		used[account], refused[account], granted[account] = map[string]bool{}, map[string]bool{}, map[string][]string{}
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		var rights suite.Rights
		if err := json.Unmarshal(text, &rights); err != nil {
			t.Fatalf("%s: %v", file, err)
		}

		for _, account := range accounts {
			maps.Copy(used[account], rights.Used[account])
			maps.Copy(refused[account], rights.Refused[account])
			maps.Copy(granted[account], rights.Granted[account])
		}
	}

	for _, account := range accounts {
		if len(granted[account]) == 0 {
			t.Errorf("%s has no rights at all", account)
		}

		for _, right := range slices.Sorted(maps.Keys(granted[account])) {
			_, exempt := unrequested[right]
			// A watch lists first where the API server does not stream lists.
			streamed := used[account][strings.TrimSuffix(right, " list")+" watch"] && strings.HasSuffix(right, " list")

			if (used[account][right] || streamed) == exempt {
				t.Errorf("%s: %s: used %t, exempt %t; granted by %s", account, right, used[account][right], exempt, strings.Join(granted[account][right], ", "))
			}
		}

		// A test removes rights and restores them: only what is granted now and was
		// refused nonetheless is of interest.
		for _, right := range slices.Sorted(maps.Keys(refused[account])) {
			t.Logf("%s was refused: %s", account, right)
		}

		t.Logf("%s: %d rights", account, len(granted[account]))
	}

	t.Logf("united from %d suites", len(files))
}

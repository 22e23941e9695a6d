package consistency

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/external-secrets/eso/release/internal/trains"
	"github.com/external-secrets/eso/release/internal/workspace"
)

func TestCheck(t *testing.T) {
	everywhere := func(string) bool { return true }
	api := trains.Train{Path: "api", Version: "0.1.0"}
	sdk := trains.Train{Path: "sdk", Version: "0.2.0"}
	apiModule := workspace.Module{Dir: "api", Path: ModulePrefix + "api"}
	sdkModule := func(version, folder string) workspace.Module {
		return workspace.Module{
			Dir: "sdk", Path: ModulePrefix + "sdk",
			Requires: map[string]string{ModulePrefix + "api": version, "example.com/third": "v1.0.0"},
			Replaces: map[string]string{ModulePrefix + "api": folder},
		}
	}

	for _, test := range []struct {
		why          string
		trains       []trains.Train
		modules      []workspace.Module
		hasChangelog func(string) bool
		want         []string
	}{
		{
			why:     "all agree",
			trains:  []trains.Train{api, sdk},
			modules: []workspace.Module{apiModule, sdkModule("v0.1.0", "api")},
		},
		{
			why:     "a module without a train would be forgotten",
			trains:  []trains.Train{api},
			modules: []workspace.Module{apiModule, sdkModule("v0.1.0", "api")},
			want:    []string{"sdk is in go.work, but not in trains.yaml"},
		},
		{
			why:     "a module outside of go.work is neither built nor tested",
			trains:  []trains.Train{api, sdk},
			modules: []workspace.Module{apiModule},
			want:    []string{"sdk is in trains.yaml, but go.work does not use it"},
		},
		{
			why:     "a released module requires what is released with it",
			trains:  []trains.Train{api, sdk},
			modules: []workspace.Module{apiModule, sdkModule("v0.0.9", "api")},
			want:    []string{"sdk requires api at v0.0.9, but trains.yaml has it at v0.1.0"},
		},
		{
			why:     "without a replacement a checkout builds against the last release",
			trains:  []trains.Train{api, sdk},
			modules: []workspace.Module{apiModule, sdkModule("v0.1.0", "")},
			want:    []string{"sdk must replace api by its folder"},
		},
		{
			why:     "a replacement by another folder is as bad as none",
			trains:  []trains.Train{api, sdk},
			modules: []workspace.Module{apiModule, sdkModule("v0.1.0", "elsewhere/api")},
			want:    []string{"sdk must replace api by its folder"},
		},
		{
			why:     "the module path is where the go command looks for the folder",
			trains:  []trains.Train{api},
			modules: []workspace.Module{{Dir: "api", Path: "example.com/api"}},
			want: []string{
				"api is in trains.yaml, but go.work does not use it",
				"api: the module path is example.com/api, not " + ModulePrefix + "api",
			},
		},
		{
			why:          "readers of a release want to know what changed",
			trains:       []trains.Train{api},
			modules:      []workspace.Module{apiModule},
			hasChangelog: func(string) bool { return false },
			want:         []string{"api has no CHANGELOG.md"},
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			if test.hasChangelog == nil {
				test.hasChangelog = everywhere
			}
			got := Check(test.trains, test.modules, test.hasChangelog)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Check() (-want +got):\n%s", diff)
			}
		})
	}
}

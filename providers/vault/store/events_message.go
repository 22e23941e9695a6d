package store

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/external-secrets/eso/sdk/provider"
)

// eventsPath is the path below which clients subscribe to a type of events.
const eventsPath = "sys/events/subscribe/"

// event has the fields of Vault's events, which are CloudEvents, that a store uses.
// An event has names only, no values.
type event struct {
	Data struct {
		Event struct {
			Metadata struct {
				// Path of the request that caused the change, below the namespace.
				Path string `json:"path"`
				// Modified is "true" or "false"; early versions leave it out.
				Modified string `json:"modified"`
			} `json:"metadata"`
		} `json:"event"`
		// EventType is an engine's version and what was done, such as
		// kv-v2/data-write.
		EventType  string `json:"event_type"`
		PluginInfo struct {
			MountPath string `json:"mount_path"`
		} `json:"plugin_info"`
	} `json:"data"`
}

// readEvent reads one.
func readEvent(text []byte) (event, error) {
	var e event

	if err := json.Unmarshal(text, &e); err != nil || e.Data.EventType == "" {
		return event{}, provider.Unavailable("cannot watch: the message is no event of Vault's")
	}

	return e, nil
}

// types returns the prefix of an engine's types of events.
func (e engine) types() string {
	if e.v2() {
		return "kv-v2/"
	}

	return "kv-v1/"
}

// subscription is the path to subscribe at.
func (e engine) subscription() string { return eventsPath + e.types() + "*" }

// secrets are all paths of the engine, as a policy names them.
func (e engine) secrets() string {
	if mount := strings.Trim(e.mount, "/"); mount != "" {
		return mount + "/*"
	}

	return "<mount>/*"
}

// events returns the parameters of a subscription: its format and filter.
func (e engine) events() url.Values {
	query := url.Values{"json": {"true"}}

	// Events of other mounts are filtered out. Vault's filters cannot quote a
	// quotation mark.
	if mount := strings.Trim(e.mount, "/"); mount != "" && !strings.ContainsAny(mount, "\"\\`") {
		query.Set("filter", `source_plugin_mount == "`+mount+`/"`)
	}

	return query
}

// changed returns the keys to report for an event: those that are watched, or, if
// watched is nil, all names of the secret. Without any, the event does not concern
// the store.
func (e engine) changed(told event, watched map[string][]string) []string {
	if !strings.HasPrefix(told.Data.EventType, e.types()) || told.Data.Event.Metadata.Modified == "false" {
		return nil
	}

	mount, rest := e.secretOf(told)
	if rest == "" {
		return nil
	}

	path := mount + "/" + rest
	if e.v2() {
		path = mount + "/data/" + rest
	}

	if watched != nil {
		return watched[path]
	}

	return e.names(path, mount, rest)
}

// secretOf is the mount that an event comes from, and the path below it of the
// secret that it is about; the latter is empty where it is about none.
func (e engine) secretOf(told event) (mount, rest string) {
	path := strings.Trim(told.Data.Event.Metadata.Path, "/")

	// Early versions name the mount nowhere.
	if mount = strings.Trim(told.Data.PluginInfo.MountPath, "/"); mount == "" {
		mount = strings.Trim(e.mount, "/")
	}

	rest = strings.TrimPrefix(path, mount+"/")

	// What was done comes first: data, metadata, delete, undelete, destroy. The
	// engine's own settings have nothing after that.
	if e.v2() {
		_, rest, _ = strings.Cut(rest, "/")
	}

	return mount, rest
}

// names are the keys that locate gives the path for: a key may repeat the mount
// and what the API puts after it, and begin with a slash. To another engine's
// path no key leads.
func (e engine) names(path, mount, rest string) []string {
	names := make([]string, 0, 6) //nolint:mnd // three, with and without the slash

	for _, name := range []string{rest, mount + "/" + rest, mount + "/data/" + rest} {
		if at, err := e.locate(name, "", false); err != nil || at.path != path || slices.Contains(names, name) {
			continue
		}

		names = append(names, name, "/"+name)
	}

	return names
}

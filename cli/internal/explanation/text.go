package explanation

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/core/offline"
)

// labelWidth of the first column.
const labelWidth = 16

// writer writes labelled lines, aligned.
type writer struct{ strings.Builder }

// line begins a part, or continues one where the label is empty.
func (w *writer) line(label, format string, args ...any) {
	fmt.Fprintf(w, "%-*s%s\n", labelWidth, label, fmt.Sprintf(format, args...))
}

// list writes a part with a line for each text.
func (w *writer) list(label string, texts []string) {
	for _, text := range texts {
		w.line(label, "%s", text)
		label = ""
	}
}

// Text is the explanation for people.
func (e *Explanation) Text() string {
	w := &writer{}

	switch {
	case e.File != "" && e.Namespace != "":
		w.line("ExternalSecret", "%s in namespace %s, of %s", e.Name, e.Namespace, e.File)
	case e.File != "":
		w.line("ExternalSecret", "%s, of %s", e.Name, e.File)
	default:
		w.line("ExternalSecret", "%s in namespace %s", e.Name, e.Namespace)
	}

	e.status(w)
	w.list("Problems", e.Problems)
	e.target(w)
	e.refresh(w)

	for _, store := range e.Stores {
		store.text(w)
	}

	var templates []string
	for _, template := range e.Templates {
		templates = append(templates, fmt.Sprintf("%s %q", template.Kind, template.Name))
	}

	w.list("Templates", templates)
	w.list("Notes", e.Notes)
	e.why(w)

	return w.String()
}

func (e *Explanation) status(w *writer) {
	if e.Status == nil {
		return
	}

	s := e.Status
	w.line("Ready", "%s", s.Ready.text(s.now))

	if s.Ready.Message != "" {
		w.line("", "%s", s.Ready.Message)
	}

	if s.LastRefresh == nil {
		w.line("Last refresh", "never")
	} else {
		w.line("Last refresh", "%s, %s ago", stamp(s.LastRefresh), short(s.now.Sub(s.LastRefresh.Time).Round(time.Second)))
	}

	switch {
	case s.Next.Due && s.Ready.Status == metav1.ConditionFalse:
		w.line("Next refresh", "due now: %s; the last try failed", s.Next.Why)
	case s.Next.Due:
		w.line("Next refresh", "due now: %s", s.Next.Why)
	case s.Next.Time == nil:
		w.line("Next refresh", "%s", s.Next.Why)
	default:
		w.line("Next refresh", "%s, in %s", stamp(s.Next.Time), s.Next.In)
	}
}

func (c *Condition) text(now time.Time) string {
	text := string(c.Status)
	if c.Reason != "" {
		text += " (" + c.Reason + ")"
	}

	if c.Since != nil {
		text += fmt.Sprintf(" since %s, for %s", stamp(c.Since), short(now.Sub(c.Since.Time).Round(time.Second)))
	}

	if c.Stale {
		text += "; of an older generation of the object"
	}

	return text
}

func (e *Explanation) target(w *writer) {
	t := e.Target

	kind := t.Kind
	if t.APIVersion != "v1" {
		kind += " of " + t.APIVersion
	}

	text := fmt.Sprintf("%s %s", kind, t.Name)
	if t.Type != "" {
		text += ", type " + t.Type
	}

	if t.Immutable {
		text += ", immutable: after creation, it is never refreshed"
	}

	w.line("Target", "%s", text)
	w.line("", "creationPolicy %s: %s", t.CreationPolicy, creation(t.CreationPolicy))
	w.line("", "deletionPolicy %s: %s", t.DeletionPolicy, deletion(t.DeletionPolicy))
}

func creation(policy string) string {
	switch esv1.CreationPolicy(policy) {
	case esv1.CreationOwner:
		return "it is created, has no other keys, and is deleted with the ExternalSecret"
	case esv1.CreationOrphan:
		return "it is created, has no other keys, and is kept when the ExternalSecret is deleted"
	case esv1.CreationMerge:
		return "it must exist; keys are added"
	case esv1.CreationCreateOrMerge:
		return "it is created if it does not exist; otherwise keys are added"
	case esv1.CreationNone:
		return "nothing is created"
	default:
		return "there is no such policy"
	}
}

func deletion(policy string) string {
	switch esv1.DeletionPolicy(policy) {
	case esv1.DeletionRetain:
		return "an absent secret is an error, and the target is retained"
	case esv1.DeletionDelete:
		return "the key of an absent secret is removed; the target is deleted with the last one"
	case esv1.DeletionMerge:
		return "the key of an absent secret is removed; the target is retained"
	default:
		return "there is no such policy"
	}
}

func (e *Explanation) refresh(w *writer) {
	r := e.Refresh

	switch {
	case r.Policy == string(esv1.RefreshCreatedOnce):
		w.line("Refresh", "CreatedOnce: once")
	case r.Policy == string(esv1.RefreshOnChange):
		w.line("Refresh", "OnChange: when the ExternalSecret changes")
	case r.once:
		w.line("Refresh", "once: refreshInterval is 0")
	default:
		w.line("Refresh", "every %s, and up to %s earlier; at once when something changes", r.Interval, r.Jitter)
	}

	if r.Windows == nil {
		return
	}

	verb := "inside"
	if r.Windows.Kind == "deny" {
		verb = "outside"
	}

	for _, window := range r.Windows.Windows {
		w.line("", "%s the window %q of %s (UTC)", verb, window.Schedule, window.Duration)
	}

	state, next := "closed", "opens"
	if r.Windows.Open {
		state, next = "open", "closes"
	}

	if r.Windows.Changes == nil {
		w.line("", "%s now, for good", state)
	} else {
		w.line("", "%s now; %s at %s, in %s", state, next, stamp(r.Windows.Changes), short(r.Windows.in.Round(time.Second)))
	}
}

func (s Store) text(w *writer) {
	w.line("Store", "%s %s of %s", s.Kind, s.Name, s.APIVersion)

	if s.State != nil {
		s.State.text(w)
	}

	if n := len(s.Reads) + len(s.Finds); n > 0 {
		w.line("", "%s", counted(len(s.Reads), len(s.Finds)))
	}

	for _, read := range s.Reads {
		w.line("", "  %s -> %s", read.text(), strings.Join(read.For, ", "))
	}

	for _, find := range s.Finds {
		w.line("", "  %s -> %s", find.text, strings.Join(find.For, ", "))
	}
}

// counted says what one batch holds.
func counted(reads, finds int) string {
	var parts []string

	if reads > 0 {
		parts = append(parts, plural(reads, "read")+" in one batch")
	}

	if finds > 0 {
		parts = append(parts, plural(finds, "search"))
	}

	return strings.Join(parts, ", ") + ":"
}

func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "h"):
		return fmt.Sprintf("%d %ses", n, noun)
	default:
		return fmt.Sprintf("%d %ss", n, noun)
	}
}

func (r Read) text() string {
	text := fmt.Sprintf("key %q", r.Key)
	if r.Property != "" {
		text += fmt.Sprintf(" property %q", r.Property)
	}

	if r.Version != "" {
		text += fmt.Sprintf(" version %q", r.Version)
	}

	if r.Metadata {
		text += " metadata"
	}

	if r.Map {
		text += ", every key of it"
	}

	return text
}

func (s *StoreState) text(w *writer) {
	if s.Ready != nil {
		w.line("", "Ready %s (%s)", s.Ready.Status, s.Ready.Reason)
	}

	if s.Config == "" {
		return
	}

	text := "config " + s.Config
	if s.Provider != "" {
		text += fmt.Sprintf(", served by SecretProvider %q", s.Provider)
	}

	if s.ProviderReady != nil {
		text += fmt.Sprintf(", Ready %s (%s)", s.ProviderReady.Status, s.ProviderReady.Reason)
	}

	w.line("", "%s", text)
}

// why writes the chain of reasons, from the ExternalSecret to the provider.
func (e *Explanation) why(w *writer) {
	if e.Status == nil {
		return
	}

	var steps []string

	for _, store := range e.Stores {
		if store.State == nil {
			continue
		}

		for _, obstacle := range store.State.Obstacles {
			steps = append(steps, step(obstacle))
		}
	}

	if len(steps) == 0 {
		return
	}

	label := "In the way"
	if e.Status.Ready.Status == metav1.ConditionFalse {
		label = "Why"
	}

	for i, text := range steps {
		w.line(label, "%d. %s", i+1, text)
		label = ""
	}
}

// step writes an obstacle. A message that names the object says all.
func step(obstacle offline.Obstacle) string {
	if strings.Contains(obstacle.Message, obstacle.Object) {
		return obstacle.Message
	}

	return fmt.Sprintf("%s: %s: %s", obstacle.Object, obstacle.Reason, obstacle.Message)
}

func stamp(t *metav1.Time) string { return t.UTC().Format(time.RFC3339) }

// short writes a duration without the units that are zero at its end.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}

	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}

	return text
}

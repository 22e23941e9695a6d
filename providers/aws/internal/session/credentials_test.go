package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/external-secrets/eso/sdk/provider"
)

// Credentials are renewed well before they expire, stay in use while AWS is
// unavailable, and are dropped after a refusal.
func TestStep(t *testing.T) {
	now := time.Now()
	got := aws.Credentials{AccessKeyID: "ASIA", SecretAccessKey: "s", CanExpire: true, Expires: now.Add(time.Hour)}
	l := &step{
		session: &Session{hidden: map[string]aws.Credentials{}}, now: func() time.Time { return now },
		from: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return got, nil }),
	}

	early, err := l.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if left := got.Expires.Sub(early.Expires); left < renewBefore/2 || left > renewBefore {
		t.Errorf("they are renewed %s before they expire", left)
	}

	now = now.Add(58 * time.Minute)

	kept, err := l.HandleFailToRefresh(t.Context(), early, provider.Unavailable("AWS is away"))
	if err != nil || kept.AccessKeyID != "ASIA" || !kept.Expires.Equal(now.Add(renewPause)) {
		t.Errorf("while AWS is away: until %s, %v", kept.Expires.Sub(now), err)
	}

	if _, err := l.HandleFailToRefresh(t.Context(), early, provider.Unauthenticated("the role does not exist")); err == nil {
		t.Error("they outlive a refusal")
	}

	now = now.Add(3 * time.Minute)

	away := provider.Unavailable("AWS is away")
	if _, err := l.HandleFailToRefresh(t.Context(), early, away); !errors.Is(err, away) {
		t.Errorf("after their end: %v", err)
	}
}

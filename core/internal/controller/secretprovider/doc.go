// Package secretprovider keeps registrations: it issues a provider's
// certificate, asks the provider what it is and whether it is well, and says
// so in the SecretProvider's status.
package secretprovider

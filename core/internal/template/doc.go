// Package template renders the templates of ExternalSecrets and PushSecrets:
// Go templates with the functions that External Secrets Operator's engine v2
// offers.
//
// Templates are written by those who may write an ExternalSecret, or come out
// of a ConfigMap or a Secret; the values that they are given come from a store.
// Neither is trusted with the operator's process, and neither may read what
// the other holds by way of an error. Therefore the package must never
//
//   - offer a function that is not in its list: one that reads the environment,
//     files, DNS or the network, or that a new version of a library brought;
//   - put a value, or a part of one, into an error: errors end up in
//     conditions, events and logs. They name the template, the line, and what
//     is wrong in words of this package;
//   - run without end, or take memory without end, whatever the template or
//     the values;
//   - start a goroutine, or keep anything of one Render for the next.
package template

// A provider without any library: what it keeps of the protocol it keeps by
// what the protocol says, and not by what gRPC for Go does.
import fs from 'node:fs';
import http2 from 'node:http2';

const flag = (name) => process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3);
const [host, port] = flag('listen').split(':');
const dir = flag('tls-dir');

const operator = 'URI:spiffe://external-secrets.io/operator';
const maxBatch = 16;
const maxBytes = 1 << 20;
const slowness = 1500;
const secrets = {
  db: '{"password":"db-password-1","user":"db-user-1"}',
  text: 'a-plain-text',
};

// Protocol buffers: as much as is needed.
const varint = (n) => {
  const bytes = [];
  for (; n > 127; n = Math.floor(n / 128)) bytes.push((n % 128) | 128);
  return Buffer.from([...bytes, n]);
};
const number = (field, n) => (n ? Buffer.concat([varint(field * 8), varint(n)]) : Buffer.alloc(0));
const bytes = (field, value) => {
  const body = Buffer.from(value);
  return Buffer.concat([varint(field * 8 + 2), varint(body.length), body]);
};
const message = (...parts) => Buffer.concat(parts);

function decode(buffer) {
  const fields = {};
  let at = 0;
  const next = () => {
    let n = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = buffer[at++];
      n += (byte & 127) * factor;
      if (byte < 128) return n;
    }
  };
  while (at < buffer.length) {
    const tag = next();
    const field = Math.floor(tag / 8);
    let value;
    if (tag % 8 === 0) value = next();
    else if (tag % 8 === 2) {
      const length = next();
      value = buffer.subarray(at, at + length);
      at += length;
    } else throw fail(3, 'INVALID_REQUEST', 'a field has a type that nobody uses');
    (fields[field] ??= []).push(value);
  }
  return fields;
}
const text = (fields, field) => (fields[field]?.at(-1) ?? '').toString();
const nested = (fields, field) => decode(fields[field]?.at(-1) ?? Buffer.alloc(0));

// Errors.
const fail = (code, reason, what) => Object.assign(new Error(what), { code, reason });
const detailsOf = (error) =>
  message(
    number(1, error.code),
    bytes(2, error.message),
    bytes(3, message(
      bytes(1, 'type.googleapis.com/google.rpc.ErrorInfo'),
      bytes(2, message(bytes(1, error.reason), bytes(2, 'externalsecrets.provider'), bytes(3, message(bytes(1, 'scope'), bytes(2, 'item'))))),
    )),
  );

// What is served.
let serving = true;

function contextOf(request, validating) {
  const context = nested(request, 1);
  const [store, config] = [nested(context, 2), nested(context, 3)];
  const own = text(config, 3);
  const [kind, source, auth] = [text(store, 1), text(context, 4), text(context, 5)];
  if ([text(context, 1), text(store, 3), text(store, 4), ...[1, 2, 3, 4, 5].map((field) => text(config, field))].includes('')) {
    throw fail(3, 'INVALID_REQUEST', 'the context is incomplete');
  }
  const allowed = {
    SecretStore: text(store, 2) === own && auth === own && (source === '' || source === own),
    ClusterSecretStore: text(store, 2) === '' && (auth === own || auth === source),
  }[kind];
  if (allowed === undefined) throw fail(3, 'INVALID_REQUEST', 'the store is of an unknown kind');
  if (!allowed) throw fail(7, 'REFERENCE_DENIED', 'the namespaces may not stand together');
  if (!validating) {
    if (source === '') throw fail(3, 'INVALID_REQUEST', 'the source namespace is empty');
    if (text(config, 2) !== 'Memory') throw fail(9, 'INVALID_CONFIG', 'the kind is not served');
    if (text(config, 5) !== text(config, 4) + '-uid' || (config[6]?.at(-1) ?? 0) > 1) throw fail(14, 'CONFIG_OUTDATED', 'the config is another one');
  }
  return text(config, 4);
}

function read(wire) {
  const id = bytes(1, text(wire, 1));
  const failed = (reason, what) => message(id, bytes(5, message(number(1, 5), bytes(2, reason), bytes(3, what))));
  const value = secrets[text(wire, 3)];
  if (value === undefined) return failed('NOT_FOUND', 'no such secret');
  const object = value.startsWith('{') ? JSON.parse(value) : {};
  if (wire[2]?.at(-1) === 2) return message(id, bytes(3, message(...Object.entries(object).map(([k, v]) => bytes(1, message(bytes(1, k), bytes(2, v)))))));
  const property = text(wire, 4);
  if (property === '') return message(id, bytes(2, value));
  return property in object ? message(id, bytes(2, object[property])) : failed('PROPERTY_NOT_FOUND', 'no such property');
}

const provider = '/externalsecrets.provider.v2alpha1.';
const calls = {
  [provider + 'ProviderInfo/GetInfo']: () =>
    message(
      bytes(1, 'another-language'), bytes(2, '1.0.0'), bytes(3, 'v2alpha1'),
      bytes(4, message(bytes(1, 'provider.example.com/v1'), bytes(2, 'Memory'), number(3, 1), bytes(4, [1]))),
      bytes(5, message(number(1, maxBatch), number(2, maxBytes))),
    ),
  [provider + 'ProviderInfo/GetStatus']: () => number(1, 1),
  [provider + 'SecretStore/Validate']: (request) =>
    contextOf(request, true) === 'backend' ? number(1, 1) : message(number(1, 2), bytes(2, 'there is no such config')),
  [provider + 'SecretStore/GetSecrets']: async (request) => {
    const config = contextOf(request, false);
    const reads = (request[2] ?? []).map(decode);
    const ids = reads.map((wire) => text(wire, 1));
    if (reads.length > maxBatch) throw fail(3, 'TOO_LARGE', 'too many reads');
    if (new Set(ids).size < ids.length || ids.includes('') || reads.some((wire) => text(wire, 3) === '' || ![1, 2].includes(wire[2]?.at(-1)))) {
      throw fail(3, 'INVALID_REQUEST', 'a read is malformed');
    }
    if (config === 'slow') await new Promise((resolve) => setTimeout(resolve, slowness));
    return message(...reads.map((wire) => bytes(1, read(wire))));
  },
  '/grpc.health.v1.Health/Check': () => number(1, serving ? 1 : 2),
};

// gRPC.
function answer(stream, path, timeout) {
  let body = Buffer.alloc(0);
  let over = false;
  const end = (error) => {
    if (over || stream.destroyed) return;
    over = true;
    stream.respond({
      ':status': 200, 'content-type': 'application/grpc', 'grpc-status': String(error.code), 'grpc-message': encodeURIComponent(error.message),
      'grpc-status-details-bin': detailsOf(error).toString('base64'),
    }, { endStream: true });
  };
  const units = { H: 3600e3, M: 60e3, S: 1e3, m: 1, u: 1e-3, n: 1e-6 };
  if (timeout) setTimeout(() => end(fail(4, 'BACKEND_UNAVAILABLE', 'the time is over')), Number(timeout.slice(0, -1)) * units[timeout.at(-1)]).unref();

  stream.on('error', () => {});
  stream.on('data', (chunk) => {
    body = over ? body : Buffer.concat([body, chunk]);
    if (body.length > maxBytes + 5) end(fail(8, 'TOO_LARGE', 'the request is too large'));
  });
  stream.on('end', async () => {
    try {
      if (!(path in calls)) throw fail(12, 'UNSUPPORTED', 'not served');
      const result = await calls[path](decode(body.subarray(5)));
      if (over || stream.destroyed) return;
      over = true;
      const prefix = Buffer.alloc(5);
      prefix.writeUInt32BE(result.length, 1);
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
      stream.end(Buffer.concat([prefix, result]));
    } catch (error) {
      end(error.code ? error : fail(13, 'INTERNAL', 'the provider has a defect'));
    }
  });
}

const file = (name) => fs.readFileSync(`${dir}/${name}`);
const sessions = new Set();
const server = http2.createSecureServer({
  key: file('tls.key'), cert: file('tls.crt'), ca: file('ca.crt'), requestCert: true, rejectUnauthorized: true, minVersion: 'TLSv1.3',
});

server.on('session', (session) => {
  if (!(session.socket.getPeerCertificate().subjectaltname ?? '').split(', ').includes(operator)) {
    session.destroy();
    return;
  }
  sessions.add(session);
  session.on('close', () => sessions.delete(session));
  session.on('error', () => {});
});
server.on('stream', (stream, headers) => answer(stream, headers[':path'], headers['grpc-timeout']));
server.listen(Number(port), host);

process.on('SIGTERM', () => {
  serving = false;
  setTimeout(() => {
    server.close(() => process.exit(0));
    for (const session of sessions) session.close();
  }, 200);
});

/** A header selects a route only if the app receives it as it was sent: `check` and the header policy decide the same for every name. */
import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../../src/config/load/load.ts';
import { fieldSettingsOf, type RouteConfig } from '../../../src/config/schema/config.ts';
import { systemClock } from '../../../src/core/clock.ts';
import { HeaderPolicy } from '../../../src/gateway/upstream/headers.ts';
import { makeAdmitted } from '../../support/admitted.ts';
import { fc } from '../../support/property.ts';

const SCHEME = 'signature: { header: X-Sig_One, encoding: hex }, signed: [body]';
/** Settings of the route, and of the whole config. */
const CONFIGS = [
  { route: 'allow: anyone' },
  { route: 'allow: anyone, trace: { trust: always }' },
  { route: 'allow: anyone, forwardMethodOverride: true' },
  { route: 'basic: { requireTls: false, realm: r, users: [{ file: users }] }' },
  { route: 'basic: { requireTls: false, realm: r, users: [{ file: users }], forwardAuthorization: true, forwardUser: false }' },
  {
    route: 'clientCertificate: { names: ["CN:a"], forward: true }',
    listen: 'tls: { certFile: c, keyFile: k, clientCaFile: ca }',
  },
  { route: 'clientCertificate: { names: ["CN:a"] }', listen: 'tls: { certFile: c, keyFile: k, clientCaFile: ca }' },
  { route: 'webhook: { scheme: github, keys: [{ name: k, secret: { env: A } }] }' },
  { route: `webhook: { scheme: custom, custom: { ${SCHEME} }, dedup: off, keys: [{ name: k, secret: { env: A } }] }` },
  {
    route: `webhook: { scheme: custom, custom: { ${SCHEME.replace('X-Sig_One', 'X-Datadog-Sig')} }, dedup: off, keys: [{ name: k, secret: { env: A } }] }`,
  },
  { route: 'allow: anyone', top: 'identity: { audience: a, key: { name: k, secret: { env: A } } }' },
  { route: 'allow: anyone', listen: 'trustedProxies: [10.0.0.0/8]' },
  { route: 'allow: anyone', listen: 'trustedIdentityProxies: [10.0.0.0/8]' },
  { route: 'allow: anyone', top: 'tracing: { otlp: { url: "http://127.0.0.1:4318" } }' },
].map((each) => ({ route: each.route, listen: each.listen ?? '', top: each.top ?? '' }));
const NAMES = [
  ...['b3', 'x-b3-traceid', 'x-b3-sampled', 'baggage', 'traceparent', 'tracestate', 'uber-trace-id', 'sentry-trace', 'newrelic'],
  ...['x-datadog-trace-id', 'x-datadog-sig', 'x-amzn-trace-id', 'x-cloud-trace-context', 'grpc-trace-bin', 'ot-baggage-a'],
  ...['authorization', 'cookie', 'proxy-authorization', 'x-sig-one', 'x-sig', 'x-hub-signature-256', 'x-github-event'],
  ...[
    'connection',
    'te',
    'trailer',
    'upgrade',
    'keep-alive',
    'http2-settings',
    'transfer-encoding',
    'content-length',
    'expect',
    'via',
  ],
  ...[
    'x-forwarded-for',
    'x-forwarded-proto',
    'x-forwarded-host',
    'x-forwarded-user',
    'x-forwarded-port',
    'forwarded',
    'x-real-ip',
  ],
  ...['sidegate-user', 'sidegate-anything', 'remote-user', 'client-cert', 'x-client-cert', 'x-original-url', 'x-host', 'proxy'],
  ...[
    'x-http-method-override',
    'x-method-override',
    'x-http-method',
    'cf-visitor',
    'x-scheme',
    'content-type',
    'content-encoding',
  ],
  ...['x-hook-secret', 'accept', 'user-agent', 'origin', 'range', 'x-event', 'date', 'webhook-id', 'svix-id', 'idempotency-key'],
];

function load({ route, listen, top }: (typeof CONFIGS)[number], headers?: readonly string[]): ReturnType<typeof parseConfig> {
  const match = JSON.stringify({ path: '/a', headers });
  const text = `listen: { address: 127.0.0.1:8480${listen === '' ? '' : `, ${listen}`} }\n${top}\nroutes:\n`;
  return parseConfig(
    'gate.yaml',
    `${text}  - { name: r, upstream: "http://127.0.0.1:1", match: ${match}, ${route} }\n`,
    systemClock,
  );
}

function isAccepted(config: (typeof CONFIGS)[number], name: string): boolean {
  return !load(config, [name]).problems.some(({ path }) => path.startsWith('routes.0.match.headers'));
}

/** Whether the app of a route receives the field exactly as an ordinary client sends it. */
function reachesApp(route: RouteConfig, name: string): boolean {
  const headers = ['Host', 'a.example', name, 'as-sent', name, 'twice'];
  const user = route.basic === undefined ? {} : { user: 'alice' };
  const out = new HeaderPolicy({ route: route.name, ...fieldSettingsOf(route) }).toUpstreamHeaders(
    makeAdmitted({ headers, ...user }),
  );
  const values = out.filter((_, i) => i % 2 === 1 && out[i - 1]?.toLowerCase() === name);
  return values.join() === 'as-sent,twice';
}

describe.each(CONFIGS)('with $route $listen $top, check accepts a header', (config) => {
  const { config: loaded, problems } = load(config);
  const [route] = loaded?.routes ?? [];
  if (route === undefined)
    throw new Error(`the config is invalid: ${problems.map(({ path, message }) => `${path}: ${message}`).join('; ')}`);

  test('exactly if the app receives it: names that proxies, tracing systems and senders use', () => {
    expect(NAMES.filter((name) => isAccepted(config, name))).toEqual(NAMES.filter((name) => reachesApp(route, name)));
  });

  test('exactly if the app receives it: any name except Host, for which there is match.host', () => {
    const part = fc.constantFrom(...NAMES.flatMap((name) => name.split('-')), 'x', 'id', 'a');
    const parts = fc.array(part, { minLength: 1, maxLength: 3 });
    const name = parts.map((each) => each.join('-')).filter((each) => each !== 'host');
    fc.assert(fc.property(name, (each) => isAccepted(config, each) === reachesApp(route, each)));
  });
});

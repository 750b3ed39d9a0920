import { describe, expect, test } from 'vitest';
import { toFoldedName } from '../../../../src/core/head.ts';
import { type HeaderContext, HeaderPolicy, ResponseHeaderPolicy } from '../../../../src/gateway/upstream/headers.ts';
import { type AdmittedOptions, makeAdmitted } from '../../../support/admitted.ts';
import { fc } from '../../../support/property.ts';

describe('the request header', () => {
  const CONTEXT: HeaderContext = { route: 'billing', forwardAuthorization: true };
  const ADDED = [
    ...['X-Forwarded-For', '203.0.113.9', 'X-Forwarded-Proto', 'http', 'X-Forwarded-Host', 'app.example'],
    ...['Via', '1.1 sidegate', 'Sidegate-Route', 'billing', 'Sidegate-Request-Id', '00000000-0000-4000-8000-000000000001'],
  ];

  function toHeaders(options: AdmittedOptions, context: HeaderContext = CONTEXT): string[] {
    return new HeaderPolicy(context).toUpstreamHeaders(makeAdmitted(options));
  }

  /** Every value that an app could find under `name`, in any spelling. */
  function valuesOf(headers: readonly string[], name: string): string[] {
    return headers.filter((_, i) => i % 2 === 1 && toFoldedName(headers[i - 1] as string) === name);
  }

  const OWN = ['sidegate-route', 'sidegate-key', 'sidegate-request-id', 'sidegate-user', 'sidegate-stale', 'sidegate-x'];
  /** Fields that identify the user or the calling workload, one of each known proxy or mesh. */
  const IDENTITY = [
    ...[
      'remote-user',
      'x-remote-user',
      'x-auth-request-user',
      'x-auth-request-access-token',
      'x-forwarded-user',
      'x-forwarded-email',
    ],
    ...['x-forwarded-access-token', 'x-forwarded-client-cert', 'x-forwarded-tls-client-cert-info', 'x-authentik-username'],
    ...['x-pomerium-claim-email', 'x-pomerium-jwt-assertion', 'x-vouch-user', 'x-vouch-idp-accesstoken', 'tailscale-user-login'],
    ...[
      'cf-access-jwt-assertion',
      'x-goog-iap-jwt-assertion',
      'x-ms-client-principal',
      'x-ms-token-aad-id-token',
      'x-amzn-oidc-identity',
    ],
    ...[
      'x-amzn-request-context',
      'x-userinfo',
      'oidc-claim-sub',
      'mellon-nameid',
      'shib-identity-provider',
      'iv-user',
      'sm-user',
    ],
    ...['oam-remote-user', 'impersonate-user', 'impersonate-group', 'impersonate-extra-scopes', 'x-remote-extra-scopes'],
    ...['x-consumer-username', 'x-credential-identifier', 'x-authenticated-userid', 'x-webauth-user', 'teleport-jwt-assertion'],
    ...['x-forwarded-login', 'x-forwarded-name', 'x-forwarded-uuid', 'x-forwarded-anything', 'x-webauth-fullname', 'auth-user'],
    ...['x-remote-user-id', 'x-auth-subject', 'x-auth-userid', 'x-proxy-user', 'x-proxy-roles', 'x-proxiedentitieschain'],
    ...['kubeflow-userid', 'x-sandstorm-user-id', 'x-jwt-assertion', 'x-client-dn', 'x-client-verify'],
    ...['l5d-client-id', 'dapr-caller-app-id', 'ssl-client-s-dn', 'x-ssl-client-cert', 'client-cert', 'x-appengine-user-email'],
  ];
  /** Fields that replace what was checked: the path, the method, the host, or the proxy that the app itself uses. */
  const OVERRIDES = [
    ...['proxy', 'x-original-url', 'x-original-uri', 'x-original-method', 'x-rewrite-url', 'x-forwarded-uri', 'x-forwarded-path'],
    ...[
      'x-envoy-original-path',
      'x-middleware-subrequest',
      'x-middleware-rewrite',
      'x-accel-mapping',
      'x-sendfile-type',
      'x-host',
    ],
    ...[
      'script-name',
      'path-info',
      'request-uri',
      'query-string',
      'x-context-path',
      'daphne-root-path',
      'x-vhm-root',
      'x-traversal-path',
    ],
    ...['x-script-name', 'x-forwarded-method', 'x-invoke-path', 'x-matched-path', 'x-now-route-matches', 'x-astro-path', '$wsru'],
  ];

  const CLAIMS = [
    ...['for', 'host', 'proto', 'port', 'prefix', 'server', 'ssl', 'uri', 'method', 'path', 'scheme', 'by', 'proto-version'].map(
      (end) => `x-forwarded-${end}`,
    ),
    ...['user', 'groups', 'email', 'preferred-username', 'access-token', 'client-cert', 'tls-client-cert'].map(
      (end) => `x-forwarded-${end}`,
    ),
    ...['do-connecting-ip', 'cloudfront-viewer-address', 'x-vercel-forwarded-for', 'x-vercel-proxied-for', 'incap-client-ip'],
    ...['x-nf-client-connection-ip', 'x-sucuri-clientip'],
    ...['forwarded', 'x-forwarded', 'x-real-ip', 'x-client-ip', 'x-cluster-client-ip', 'true-client-ip', 'cf-connecting-ip'],
    ...['x-original-url', 'x-original-uri', 'x-original-host', 'x-original-method', 'x-original-forwarded-for', 'x-rewrite-url'],
    ...['x-envoy-external-address', 'x-envoy-internal', 'x-auth-request-user', 'x-auth-user', 'remote-user', 'remote-groups'],
    ...['x-ssl-client-cert', 'ssl-client-verify', 'x-consumer-username', 'x-amzn-oidc-data', 'x-ms-client-principal-id'],
    ...['x-goog-authenticated-user-email', 'cf-access-authenticated-user-email', 'fastly-client-ip', 'x-client-cert'],
    ...IDENTITY,
    ...OVERRIDES,
  ];

  describe('fields that a client must not set', () => {
    /** The app gets exactly the headers of a request without the field. */
    function expectDropped(name: string, client: AdmittedOptions['client'] = {}): void {
      const headers = ['Host', 'app.example', 'X-Before', 'a'];
      expect(toHeaders({ headers: [...headers, name, 'evil', 'X-After', 'b'], client })).toEqual(
        toHeaders({ headers: [...headers, 'X-After', 'b'], client }),
      );
    }

    test.each([
      ...['Connection', 'Keep-Alive', 'Proxy-Connection', 'Proxy-Authorization', 'Proxy-Authenticate', 'TE', 'Trailer'],
      ...['Transfer-Encoding', 'Upgrade', 'Expect', 'HTTP2-Settings'],
    ])('drops %s, which is hop-by-hop', (name) => {
      for (const spelling of [name, name.toLowerCase(), name.replaceAll('-', '_')]) expectDropped(spelling);
    });

    test.each(OWN)('drops %s in every spelling, even from a trusted proxy', (name) => {
      for (const viaTrustedProxy of [false, true])
        for (const spelling of [name, name.toUpperCase(), name.replaceAll('-', '_'), name.replace('-', '.')])
          expectDropped(spelling, { viaTrustedProxy });
    });

    test.each(CLAIMS)('drops %s from a client that is not a trusted proxy', (name) => {
      for (const spelling of [name, name.toUpperCase(), name.replaceAll('-', '_'), name.replace('-', '.')])
        expectDropped(spelling);
    });

    test.each([...IDENTITY, ...OVERRIDES])('drops %s from a client behind a proxy that is trusted for addresses', (name) => {
      for (const spelling of [name, name.toUpperCase(), name.replaceAll('-', '_')])
        expectDropped(spelling, { viaTrustedProxy: true });
    });

    test.each(IDENTITY)(
      'passes %s from a proxy that is trusted for identities, but not on a route that asks for a password',
      (name) => {
        const options = { headers: ['Host', 'a', name, 'alice'], client: { viaIdentityProxy: true } };
        expect(valuesOf(toHeaders(options), name)).toContain('alice');
        const context: HeaderContext = { ...CONTEXT, user: 'forward', certificate: 'forward' };
        expect(toHeaders({ ...options, user: 'bob' }, context)).not.toContain('alice');
      },
    );

    test.each(OVERRIDES)('drops %s even from a proxy that is trusted for identities', (name) => {
      expectDropped(name, { viaTrustedProxy: true, viaIdentityProxy: true });
    });

    test.each(['X-Real-IP', 'True-Client-IP', 'CF-Connecting-IP', 'Client-IP', 'X-Cluster-Client-IP'])(
      'passes %s from a proxy that is trusted for addresses only if it is the address that X-Forwarded-For led to',
      (name) => {
        const client = { address: '198.51.100.7', viaTrustedProxy: true };
        const sent = (value: string): string[] =>
          valuesOf(toHeaders({ headers: ['Host', 'a', name, value], client }), toFoldedName(name));
        expect([sent('198.51.100.7'), sent('127.0.0.1'), sent('198.51.100.7, 127.0.0.1')]).toEqual([['198.51.100.7'], [], []]);
      },
    );

    // A name without punctuation has no other spelling.
    test.each(CLAIMS.filter((name) => name.includes('-')))('drops another spelling of %s even from a trusted proxy', (name) => {
      expectDropped(name.replaceAll('-', '_'), { viaTrustedProxy: true });
    });

    test('drops every name that an app could read as one that the gate sets, with any punctuation', () => {
      const managed = [
        ...OWN,
        ...CLAIMS,
        'webhook-id',
        'webhook-timestamp',
        'webhook-signature',
        'content-length',
        'host',
        'via',
      ];
      const spelling = fc
        .tuple(
          fc.constantFrom(...managed),
          fc.infiniteStream(fc.constantFrom('-', '_', '.', '~', '!')),
          fc.infiniteStream(fc.boolean()),
        )
        .map(([name, signs, uppers]) =>
          [...name]
            .map((letter) => (letter === '-' ? signs.next().value : uppers.next().value ? letter.toUpperCase() : letter))
            .join(''),
        );
      fc.assert(
        fc.property(spelling, (name) => {
          const folded = toFoldedName(name);
          // Another case is the same field, which passes only for the signature's own fields and Host.
          if (name.toLowerCase() === folded && !OWN.includes(folded) && !CLAIMS.includes(folded)) return;
          expect(valuesOf(toHeaders({ headers: ['Host', 'a', name, 'evil'] }), folded)).not.toContain('evil');
        }),
      );
    });

    test('drops the fields that Connection names, before the gate adds its own', () => {
      const headers = toHeaders({
        headers: ['Host', 'app.example', 'Connection', 'close, X-Hop', 'x-hop', '1', 'connection', 'x-b', 'X-B', '2', 'X-C', '3'],
      });
      expect(headers).toEqual(['Host', 'app.example', 'X-C', '3', ...ADDED, 'Content-Length', '2', 'Connection', 'keep-alive']);
    });

    test.each(['__proto__', 'constructor', 'toString', 'hasOwnProperty'])('passes on %s as a plain name', (name) => {
      expect(valuesOf(toHeaders({ headers: ['Host', 'a', name, '1'] }), toFoldedName(name))).toEqual(['1']);
      expect(toHeaders({ headers: ['Host', 'a', 'Connection', name, name, '1'] })).not.toContain('1');
    });

    test('are still decided once for each name after a client sent more names than are cached', () => {
      let decisions = 0;
      const context = {
        route: 'billing',
        get forwardAuthorization() {
          decisions++;
          return true;
        },
      };
      const policy = new HeaderPolicy(context);
      for (let i = 0; i < 1_100; i++) policy.toUpstreamHeaders(makeAdmitted({ headers: [`X-${i}`, ''] }));
      const before = decisions;
      for (let i = 0; i < 5; i++) policy.toUpstreamHeaders(makeAdmitted({ headers: ['X-New', ''] }));
      expect(decisions - before).toBe(1);
    });

    test('decides the same when there are more names than are cached', () => {
      const policy = new HeaderPolicy(CONTEXT);
      for (let i = 0; i < 1_100; i++) policy.toUpstreamHeaders(makeAdmitted({ headers: [`X-${i}`, ''] }));
      const headers = ['Host', 'a', 'X-Real-IP', 'evil', 'X-New', 'good'];
      const out = policy.toUpstreamHeaders(makeAdmitted({ headers }));
      expect([out.includes('evil'), out.includes('good')]).toEqual([false, true]);
    });
  });

  describe('the header for the app', () => {
    test('keeps the order, case and repetition of other fields, and Host unchanged', () => {
      const sent = ['X-B', '1', 'Host', 'App.Example:8080', 'x-b', '2', 'Authorization', 'Basic eDp5', 'X-A', 'é'];
      expect(toHeaders({ headers: sent }).slice(0, sent.length)).toEqual(sent);
    });

    test('names the key if one matched', () => {
      expect(valuesOf(toHeaders({ claimed: {} }), 'sidegate-key')).toEqual(['current']);
      expect(valuesOf(toHeaders({}), 'sidegate-key')).toEqual([]);
    });

    test('marks a stale event, and no other', () => {
      expect(valuesOf(toHeaders({ claimed: { isUnchecked: true } }), 'sidegate-unchecked')).toEqual(['true']);
      expect(valuesOf(toHeaders({}), 'sidegate-unchecked')).toEqual([]);
      expect(valuesOf(toHeaders({ claimed: { isStale: true } }), 'sidegate-stale')).toEqual(['true']);
      expect(valuesOf(toHeaders({}), 'sidegate-stale')).toEqual([]);
    });

    test('adds the peer to the chain of a trusted proxy, and keeps its Host', () => {
      const headers = toHeaders({
        headers: [
          ...['Host', 'inner', 'X-Forwarded-For', '1.1.1.1, 2.2.2.2', 'x-forwarded-for', '3.3.3.3', 'X-Forwarded-Host', 'outer'],
          ...['X-Forwarded-Proto', 'https', 'X-Forwarded-Port', '443', 'Forwarded', 'for=6.6.6.6'],
        ],
        client: { peer: '10.0.0.1', viaTrustedProxy: true, scheme: 'https' },
      });
      expect(valuesOf(headers, 'x-forwarded-for')).toEqual(['1.1.1.1, 2.2.2.2, 3.3.3.3, 10.0.0.1']);
      expect(valuesOf(headers, 'x-forwarded-host')).toEqual(['outer']);
      expect(valuesOf(headers, 'x-forwarded-proto')).toEqual(['https']);
      // Proxies that know X-Forwarded-For only pass on the Forwarded that a client wrote.
      expect([valuesOf(headers, 'x-forwarded-port'), valuesOf(headers, 'forwarded')]).toEqual([['443'], []]);
    });

    test.each([
      ['X-Forwarded-Port', ['443', '80, 443'], ['80/admin', '443@evil', '', '123456']],
      [
        'X-Forwarded-Prefix',
        ['/app', '/a/b%20c', '/a, /b'],
        ['//evil.example', 'https://evil.example/', '/a?b', '/"><script>', '/\\evil'],
      ],
      ['X-Forwarded-Scheme', ['https', 'HTTP, wss'], ['javascript', 'https://evil']],
      ['X-Forwarded-Server', ['proxy.example, 10.0.0.1'], ['evil/x']],
    ])('passes %s of a trusted proxy on only if it is well-formed', (name, valid, malformed) => {
      const seen = (value: string): string[] =>
        valuesOf(toHeaders({ headers: ['Host', 'a', name, value], client: { viaTrustedProxy: true } }), name.toLowerCase());
      for (const value of valid) expect(seen(value)).toEqual([value]);
      for (const value of malformed) expect(seen(value)).toEqual([]);
    });

    test.each([
      ['1.1.1.1<script>', []],
      ['<script>, 6.6.6.6, 203.0.113.9', ['6.6.6.6', '203.0.113.9']],
      ['1.1.1.1, "x", unknown, [2001:db8::1]:80, fe80::1%eth0', ['unknown', '[2001:db8::1]:80', 'fe80::1%eth0']],
    ])('drops the hops of a chain up to a malformed one: %j', (chain, kept) => {
      const client = { peer: '10.0.0.1', viaTrustedProxy: true };
      const headers = toHeaders({ headers: ['X-Forwarded-For', chain], client });
      expect(valuesOf(headers, 'x-forwarded-for')).toEqual([[...kept, '10.0.0.1'].join(', ')]);
    });

    test('falls back to Host if a trusted proxy names none, and sends an empty one if there is none at all', () => {
      const client = { viaTrustedProxy: true };
      expect(valuesOf(toHeaders({ client }), 'x-forwarded-host')).toEqual(['app.example']);
      const headers = toHeaders({ headers: [] });
      expect([valuesOf(headers, 'host'), valuesOf(headers, 'x-forwarded-host')]).toEqual([[''], []]);
    });

    test('adds itself to Via', () => {
      expect(valuesOf(toHeaders({ headers: ['Via', '1.0 a', 'via', '1.1 b'] }), 'via')).toEqual(['1.0 a, 1.1 b, 1.1 sidegate']);
    });

    test.each([
      ...['GET', 'HEAD', 'DELETE', 'OPTIONS', 'PROPFIND'].map((method) => [method, undefined] as const),
      ...['POST', 'PUT', 'PATCH'].map((method) => [method, '0'] as const),
    ])('frames %s: with a body always, without a body as %s', (method, empty) => {
      for (const headers of [[], ['Content-Length', '99'], ['Transfer-Encoding', 'chunked'], ['content_length', '99']]) {
        expect(valuesOf(toHeaders({ method, headers, body: '{}' }), 'content-length')).toEqual(['2']);
        expect(valuesOf(toHeaders({ method, headers, body: '' }), 'content-length')).toEqual(empty === undefined ? [] : [empty]);
        expect(valuesOf(toHeaders({ method, headers, body: '{}' }), 'transfer-encoding')).toEqual([]);
      }
    });
  });
});

describe('the response header', () => {
  const policy = new ResponseHeaderPolicy(new Set());

  describe('the head for the sender', () => {
    test.each([
      ...['Connection', 'Keep-Alive', 'Proxy-Connection', 'Proxy-Authenticate', 'TE', 'Trailer', 'Transfer-Encoding', 'Upgrade'],
    ])('lacks %s, which is hop-by-hop', (name) => {
      expect(policy.toSenderHead(200, [name, 'x', 'X-A', '1']).fields).toEqual(['X-A', '1']);
      expect(policy.toSenderHead(200, ['X-A', '1', name.toLowerCase(), 'x']).fields).toEqual(['X-A', '1']);
    });

    test('keeps order, case and repetition, especially of Set-Cookie', () => {
      const headers = ['Set-Cookie', 'a=1', 'X-A', 'é', 'set-cookie', 'b=2', 'Sidegate-X', '1', 'Date', 'now'];
      expect(policy.toSenderHead(200, headers).fields).toEqual(headers);
    });

    test('lacks the fields that Connection names, before or after it, but never the length', () => {
      const headers = [
        ...['X-Hop', '1', 'Connection', 'keep-alive, x-hop', 'X-B', '2', 'connection', 'X-B,Content-Length'],
        ...['Content-Length', '3', 'X-C', '4', 'Connection', 'close'],
      ];
      expect(policy.toSenderHead(200, headers)).toEqual({ fields: ['Content-Length', '3', 'X-C', '4'], contentLength: 3 });
    });

    test('has a length with any status except 101 and 204', () => {
      expect(policy.toSenderHead(200, ['content-LENGTH', '7'])).toEqual({ fields: ['content-LENGTH', '7'], contentLength: 7 });
      expect(policy.toSenderHead(304, ['Content-Length', '7']).fields).toEqual(['Content-Length', '7']);
      for (const status of [101, 204])
        expect(policy.toSenderHead(status, ['Content-Length', '0'])).toEqual({ fields: [], contentLength: undefined });
    });

    test.each(['webhook-delivery', 'Webhook-Delivery', 'WEBHOOK_DELIVERY', 'X-Slack-No-Retry', 'x_slack_no_retry'])(
      'lacks %s, with which the app would disable its sender',
      (name) => {
        expect(policy.toSenderHead(200, [name, '1']).fields).toEqual([]);
      },
    );

    test('has a sender control field that the route allows, and no other', () => {
      const allowing = new ResponseHeaderPolicy(new Set(['x-slack-no-retry']));
      expect(allowing.toSenderHead(200, ['X-Slack-No-Retry', '1', 'Webhook-Delivery', '1']).fields).toEqual([
        'X-Slack-No-Retry',
        '1',
      ]);
    });

    test('is decided once for each name after an app sent more names than are cached', () => {
      const allowed = new Set<string>();
      const lookups: string[] = [];
      allowed.has = (name) => lookups.push(name) === 0;
      const fresh = new ResponseHeaderPolicy(allowed);
      for (let i = 0; i < 1_100; i++) fresh.toSenderHead(200, [`X-${i}`, '']);
      for (let i = 0; i < 5; i++) fresh.toSenderHead(200, ['Webhook-Delivery', '1']);
      expect(lookups).toEqual(['webhook-delivery']);
    });

    test('is the same when there are more names than are cached', () => {
      const fresh = new ResponseHeaderPolicy(new Set());
      for (let i = 0; i < 1_100; i++) fresh.toSenderHead(200, [`X-${i}`, '']);
      expect(fresh.toSenderHead(200, ['Keep-Alive', 'x', 'X-New', '1']).fields).toEqual(['X-New', '1']);
    });

    test('treats names of object members as plain names', () => {
      const headers = ['__proto__', '1', 'constructor', '2', 'toString', '3'];
      expect(policy.toSenderHead(200, headers).fields).toEqual(headers);
    });
  });

  test('passes on only trailers that do not change the meaning of the header', () => {
    const trailers = ['X-Sum', '1', 'Content-Length', '5', 'Set-Cookie', 'a', 'Transfer-Encoding', 'x', 'Webhook-Delivery', '1'];
    expect(policy.toSenderTrailers([...trailers, 'Connection', 'x', 'server-timing', 'a'])).toEqual([
      ['X-Sum', '1'],
      ['server-timing', 'a'],
    ]);
  });
});

/** Which header fields are not the client's to set: of one hop only, ours, or what proxies say of a client. */

/** Of one hop only (RFC 9110 §7.6.1), on requests and answers alike. */
export const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authorization',
  'proxy-authenticate',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);

/** Whatever begins so is ours, whoever stands before us. */
const OWN_PREFIX = 'sidegate-';
/** What the signature is read from. */
const SIGNED_PREFIXES = ['webhook-', 'svix-'];

/** By what begins so, proxies tell an app who the client or the user is, and how they came. */
const CLAIM_PREFIXES = [
  'x-forwarded-',
  'x-original-',
  'x-envoy-',
  'x-auth-request-',
  'x-consumer-',
  'x-goog-authenticated-user-',
  'x-ms-client-principal',
  'x-amzn-oidc-',
  'x-amzn-mtls-',
  'x-ssl-',
  'ssl-client-',
  'cf-access-',
];

/** The same, by whole names: seen in nginx, Envoy, Traefik, HAProxy, oauth2-proxy, Authelia, Kong and the large CDNs and clouds. */
const CLAIMS = new Set([
  'forwarded',
  'forwarded-for',
  'x-forwarded',
  'x-forward-for',
  'x-real-ip',
  'x-real-port',
  'x-remote-ip',
  'x-remote-addr',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-originating-ip',
  'x-proxyuser-ip',
  'x-appengine-user-ip',
  'x-azure-clientip',
  'x-azure-socketip',
  'true-client-ip',
  'client-ip',
  'proxy-client-ip',
  'wl-proxy-client-ip',
  'cf-connecting-ip',
  'cf-connecting-ipv6',
  'cf-pseudo-ipv4',
  'cf-visitor',
  'fastly-client-ip',
  'fastly-ssl',
  'fly-client-ip',
  'x-host',
  'x-scheme',
  'x-url-scheme',
  'front-end-https',
  'x-rewrite-url',
  'x-client-cert',
  'client-cert',
  'client-cert-chain',
  'x-arr-clientcert',
  'x-arr-ssl',
  'remote-user',
  'remote-name',
  'remote-email',
  'remote-groups',
  'x-remote-user',
  'x-remote-group',
  'x-webauth-user',
  'x-auth-user',
  'x-auth-username',
  'x-auth-email',
  'x-auth-groups',
  'x-auth-roles',
  'x-goog-iap-jwt-assertion',
]);

/** The trace that a request is part of (W3C Trace Context). */
export const TRACE: ReadonlySet<string> = new Set(['traceparent', 'tracestate']);

/** Further fields that the gate or the app relies on. */
const RELIED_UPON = new Set([
  'host',
  'content-length',
  'content-type',
  'content-encoding',
  'transfer-encoding',
  'authorization',
  'cookie',
  'via',
]);

/** Ours, for folded names (core/headers.ts). */
export function isOwn(name: string): boolean {
  return name.startsWith(OWN_PREFIX);
}

/** A claim about the client that only a trusted proxy may make, for folded names (core/headers.ts). */
export function isClaim(name: string): boolean {
  return CLAIMS.has(name) || hasPrefix(name, CLAIM_PREFIXES);
}

/** A field that nobody may double under another spelling, nor have removed on the way, for folded names (core/headers.ts). */
export function isProtected(name: string): boolean {
  return RELIED_UPON.has(name) || TRACE.has(name) || isOwn(name) || isClaim(name) || hasPrefix(name, SIGNED_PREFIXES);
}

function hasPrefix(name: string, prefixes: readonly string[]): boolean {
  for (const prefix of prefixes) if (name.startsWith(prefix)) return true;
  return false;
}

/** The auth-provider `oidc` of a kubeconfig: shows the user's ID token, and renews it with the refresh token, as kubectl does. */
import { decodeJwt } from 'jose';
import type { ClientAuth, CustomFetch, ResponseBodyError } from 'openid-client';
import * as z from 'zod';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { Secret } from '../../core/secret.ts';
import type { ClusterAccess, Credentials, ProxyEnv } from './access.ts';
import { KubeError } from './error.ts';
import { Transport } from './transport.ts';

const TIMEOUT: Milliseconds = 15_000;
const MAX_BYTES = 1_048_576;

const text = z.string().nullish();

/** The fields below `auth-provider.config`, as kubectl writes them. */
export const OidcSchema = z.object({
  'idp-issuer-url': text,
  'client-id': text,
  'client-secret': text,
  'id-token': text,
  'refresh-token': text,
  'idp-certificate-authority': text,
  'idp-certificate-authority-data': text,
});

/** The tokens in one response of the provider. */
export interface OidcTokens {
  readonly idToken: Secret;
  readonly refreshToken: Secret;
}

type OidcModule = typeof import('openid-client');

/** A token that ends this soon could end on its way. */
const EXPIRY_MARGIN: Milliseconds = 10_000;
/** RFC 6749 §5.2. Anything else could be text of the provider that repeats the request. */
const ERROR_CODE = /^[a-z_]{1,64}$/;
const LOG_IN = 'log in again with the tool that wrote the kubeconfig';

/** The tokens of one user; kept in memory until they expire or the API server rejects them. */
export class OidcProvider {
  readonly #issuer: URL;
  readonly #clientId: string;
  readonly #clientSecret: Secret | undefined;
  readonly #context;
  #idToken: Secret | undefined;
  #refreshToken: Secret | undefined;
  #underWay: Promise<void> | undefined;

  /** Throws SidegateError if the kubeconfig names no provider. */
  constructor(
    config: z.output<typeof OidcSchema>,
    context: {
      readonly clock: Clock;
      /** PEM; if undefined, the CAs of the system. */
      readonly ca: string | undefined;
      readonly proxyEnv: ProxyEnv | undefined;
      /** The provider replaced the refresh token, so the one in the kubeconfig may be void. Must not reject. */
      readonly onRotation: (tokens: OidcTokens) => Promise<void>;
    },
  ) {
    const issuer = URL.parse(config['idp-issuer-url'] || 'none');
    if (issuer?.protocol !== 'https:') throw oidcError('the idp-issuer-url must be a URL that starts with https://');
    if (!config['client-id']) throw oidcError('there is no client-id');
    this.#issuer = issuer;
    this.#clientId = config['client-id'];
    this.#clientSecret = toSecret(config['client-secret']);
    this.#idToken = toSecret(config['id-token']);
    this.#refreshToken = toSecret(config['refresh-token']);
    this.#context = context;
  }

  /** Rejects with a SidegateError that contains nothing of any token. */
  async credentials(isRejected = false): Promise<Credentials> {
    const isUsable = this.#idToken !== undefined && !this.#isExpired(this.#idToken);
    // Without a refresh token the old ID token is sent again, and the API server reports why it rejects it.
    if (!isUsable || (isRejected && this.#refreshToken !== undefined)) await this.#renew();
    return this.#idToken === undefined ? {} : { token: toText(this.#idToken) };
  }

  #isExpired(token: Secret): boolean {
    try {
      const { exp } = decodeJwt(toText(token));
      return exp === undefined || exp * 1_000 - EXPIRY_MARGIN <= this.#context.clock.now();
    } catch {
      return true;
    }
  }

  /** Concurrent callers share one renewal, because many providers accept a refresh token only once. */
  #renew(): Promise<void> {
    this.#underWay ??= this.#refresh().finally(() => {
      this.#underWay = undefined;
    });
    return this.#underWay;
  }

  async #refresh(): Promise<void> {
    const refreshToken = this.#refreshToken;
    if (refreshToken === undefined)
      throw oidcError(`the id-token has expired or cannot be read, and there is no refresh-token: ${LOG_IN}`);
    // Loaded on first use, because the library and Node's fetch classes use memory.
    const oidc = await import('openid-client');
    const tokens = await this.#request(oidc, toText(refreshToken)).catch((thrown: unknown) => {
      throw this.#toError(thrown);
    });
    if (tokens.id_token === undefined) {
      throw oidcError(`${this.#issuer.host} sent no ID token; ${LOG_IN}, with the scope openid`);
    }
    const idToken = new Secret(Buffer.from(tokens.id_token));
    this.#idToken = idToken;
    if (tokens.refresh_token === undefined || tokens.refresh_token === toText(refreshToken)) return;
    this.#refreshToken = new Secret(Buffer.from(tokens.refresh_token));
    await this.#context.onRotation({ idToken, refreshToken: this.#refreshToken });
  }

  async #request(oidc: OidcModule, refreshToken: string): ReturnType<OidcModule['refreshTokenGrant']> {
    const { clock, ca, proxyEnv } = this.#context;
    const options = { [oidc.customFetch]: createOidcFetch({ clock, ca, proxyEnv }) };
    const clientAuth = toClientAuth(oidc, this.#clientSecret);
    const provider = await oidc.discovery(this.#issuer, this.#clientId, undefined, clientAuth, options);
    return oidc.refreshTokenGrant(provider, refreshToken);
  }

  #toError(thrown: unknown): SidegateError {
    const causes = toCauses(thrown);
    const unreached = causes.find((cause) => cause instanceof KubeError);
    if (unreached !== undefined) return oidcError(`the request for a new token failed: ${unreached.message}`);
    const { host } = this.#issuer;
    const code = causes.map((cause) => (cause as Partial<ResponseBodyError>).error).find((error) => typeof error === 'string');
    if (code !== undefined && ERROR_CODE.test(code)) return oidcError(`${host} rejects the refresh token (${code}): ${LOG_IN}`);
    const own = causes.map((cause) => (cause as NodeJS.ErrnoException).code).find((each) => typeof each === 'string');
    return oidcError(`${host} did not respond like an OpenID provider (${own ?? 'unknown reason'})`);
  }
}

/** RFC 6749 §2.3.1: Basic, unless the provider accepts the secret only in the body. A public client has no secret. */
function toClientAuth(oidc: OidcModule, secret: Secret | undefined): ClientAuth {
  if (secret === undefined) return oidc.None();
  return (provider, client, body, headers) => {
    const methods = provider.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    const isBasic = methods.includes('client_secret_basic') || !methods.includes('client_secret_post');
    const authenticate = isBasic ? oidc.ClientSecretBasic(toText(secret)) : oidc.ClientSecretPost(toText(secret));
    return authenticate(provider, client, body, headers);
  };
}

function toCauses(thrown: unknown): readonly Error[] {
  const causes: Error[] = [];
  for (let each = thrown; each instanceof Error && causes.length < 8; each = each.cause) causes.push(each);
  return causes;
}

function oidcError(message: string): SidegateError {
  return new SidegateError('user', 'kube_oidc', `kubeconfig: the auth-provider oidc: ${message}`);
}

function toSecret(value: string | null | undefined): Secret | undefined {
  return value ? new Secret(Buffer.from(value)) : undefined;
}

function toText(secret: Secret): string {
  return secret.expose().toString();
}

/** How to connect to the provider. */
interface OidcReach extends Pick<ClusterAccess, 'ca' | 'proxyEnv'> {
  readonly clock: Clock;
}

/** Sends requests with a deadline, a size limit, no redirects, and the configured CA and proxy. Rejects with KubeError unless the response is complete. */
function createOidcFetch({ clock, ca, proxyEnv }: OidcReach): CustomFetch {
  return async (address, { method, headers, body }) => {
    const url = new URL(address);
    const access: ClusterAccess = { server: new URL(url.origin), ca, proxyEnv, headers, credentials: async () => ({}) };
    const transport = new Transport(access, clock);
    const content =
      body === undefined || body === null
        ? undefined
        : { type: 'application/x-www-form-urlencoded', bytes: Buffer.from(String(body)) };
    const path = url.pathname + url.search;
    try {
      const response = await transport.send(
        { method, path, accept: 'application/json', content, timeout: TIMEOUT, maxBytes: MAX_BYTES },
        {},
      );
      // The body is parsed as JSON regardless of its Content-Type.
      return new Response(response.body.length === 0 ? null : new Uint8Array(response.body), {
        status: response.status,
        headers: { 'content-type': 'application/json' },
      });
    } finally {
      transport.close();
    }
  };
}

/** Finds secrets with more than one purpose: a signature or token made for one of them would be valid for the other. */
import { createPublicKey, hash, type KeyObject } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { toProbeAddress } from '../config/rules/validate.ts';
import type { Config, SecretSource, WebhookConfig } from '../config/schema/config.ts';
import { readSecret } from '../config/sources/secrets.ts';
import { parseBase64Key, parseHex } from '../core/bytes.ts';
import { isReachedBy } from '../core/listen-address.ts';
import { error, isError, type Path, type Problem, warning } from '../core/problem.ts';
import { HANDSHAKES } from '../verify/handshakes/catalogue.ts';
import { coversQuery, signsUrl } from '../verify/schemes/coverage.ts';
import { type KeyRing, Material, toEd25519Key } from '../verify/schemes/keys.ts';
import type { VerifyKey } from '../verify/schemes/scheme.ts';
import { formatSigningSecret, parseSigningSecret, type SigningSecret } from '../verify/sign/signing-keys.ts';
import type { CompiledRoute } from './compiled-route.ts';
import type { KeysRead } from './keys.ts';

/** The result of comparing all secrets. */
interface SharedSecrets {
  /** For each route: the keys that may be used, and the problems, also those from before. */
  readonly keys: readonly KeysRead[];
  /** Problems of other secrets. */
  readonly others: readonly Problem[];
}

/** One purpose of a secret. */
interface SecretUse {
  readonly path: Path;
  /** For messages: "a key of route orders". */
  readonly title: string;
  /** Uses with the same owner may have the same secret, as during a rotation. */
  readonly owner: string;
  readonly digests: ReadonlySet<string>;
  /** Of a key of a webhook route. */
  readonly webhook?: WebhookConfig;
  readonly key?: { readonly route: number; readonly name: string };
  /** The secret signs deliveries to an endpoint, whose owner knows them, and the secret as well. */
  readonly isEndpoint?: true;
}

interface SecretConflict {
  /** The use that is not possible, or not advisable. */
  readonly at: SecretUse;
  readonly problem: Problem;
}

const OWN_SECRET = 'generate a secret for each purpose';
const OTHER_SECRET = 'use another secret for one of them';
const PUBLIC = 'public ';
const PREFIX = /^wh(?:sec|sk|pk)_/;

/**
 * Compares all secrets of a config. A key of a route that others can sign requests with is unavailable, and has an error. `keys`: as they
 * were read, for each route.
 */
export async function separateSecrets(
  config: Config,
  routes: readonly CompiledRoute[],
  keys: readonly KeysRead[],
): Promise<SharedSecrets> {
  const uses = [...routes.flatMap((route, index) => toRouteUses(route, keys[index], index)), ...(await readOtherUses(config))];
  const conflicts = Map.groupBy(findConflicts(uses), ({ at }) => at.key?.route);
  return {
    keys: keys.map((read, index) => withConflicts(read, conflicts.get(index) ?? [])),
    others: (conflicts.get(undefined) ?? []).map(({ problem }) => problem),
  };
}

/** The route that accepts deliveries signed by the secret of an endpoint; undefined if there is none. */
export function findRouteOf(secret: SigningSecret, rings: ReadonlyMap<string, KeyRing>): string | undefined {
  const digests = toSigningDigests(secret);
  for (const [route, ring] of rings)
    if (ring.all.some((key) => [...toKeyDigests(key)].some((digest) => digests.has(digest)))) return route;
  return undefined;
}

function withConflicts(read: KeysRead, conflicts: readonly SecretConflict[]): KeysRead {
  if (conflicts.length === 0) return read;
  const { set, problems } = read;
  const closed = conflicts.flatMap(({ at, problem }) => (isError(problem) && at.key !== undefined ? [at.key.name] : []));
  return {
    set: {
      ...set,
      keys: set.keys.filter(({ name }) => !closed.includes(name)),
      unavailable: [...set.unavailable, ...closed],
    },
    problems: [...problems, ...conflicts.map(({ problem }) => problem)],
  };
}

/** At most one for each use, the most severe one. Thousands of routes can have one secret, so each is compared with one of each kind. */
function findConflicts(uses: readonly SecretUse[]): SecretConflict[] {
  const byDigest = new Map<string, Map<string, readonly (readonly [index: number, use: SecretUse])[]>>();
  for (const [index, use] of uses.entries())
    for (const digest of use.digests) {
      const kinds = byDigest.get(digest) ?? new Map();
      const kind = toKind(use, digest);
      const found = kinds.get(kind) ?? [];
      // Two of different owners: one of them is not the owner of the use that is compared.
      if (found.length < 2 && found[0]?.[1].owner !== use.owner) byDigest.set(digest, kinds.set(kind, [...found, [index, use]]));
    }
  return uses.flatMap((use, index) => {
    const conflicts = [...use.digests].flatMap((digest) => {
      const others = [...(byDigest.get(digest)?.values() ?? [])].flat().sort(([a], [b]) => a - b);
      return others.flatMap(
        ([at, other]) => toConflict(...(at < index ? ([other, use] as const) : ([use, other] as const)), digest) ?? [],
      );
    });
    const own = conflicts.filter(({ at }) => at === use);
    return own.find(({ problem }) => isError(problem)) ?? own[0] ?? [];
  });
}

/** Uses of the same kind conflict with the same uses of other owners. */
function toKind({ webhook, isEndpoint }: SecretUse, digest: string): string {
  if (webhook === undefined) return `${isEndpoint}`;
  const { description, handshake } = webhook;
  const isOfTarget = signsUrl(description) || coversQuery(description);
  return JSON.stringify([handshake?.type, isOfTarget, digest.startsWith(PUBLIC) ? description : 0]);
}

function toConflict(earlier: SecretUse, later: SecretUse, digest: string): SecretConflict | undefined {
  if (earlier.owner === later.owner) return undefined;
  if (signsTokensFor(earlier, later)) return toSignedByAnyone(later, earlier);
  if (signsTokensFor(later, earlier)) return toSignedByAnyone(earlier, later);
  if (earlier.isEndpoint !== later.isEndpoint) return toKnownToOwner(earlier, later);
  if (earlier.webhook !== undefined && later.webhook !== undefined) {
    if (isDistinct(earlier.webhook, later.webhook, digest)) return undefined;
    return toWarning(
      later,
      `the secret is also ${earlier.title}: a captured delivery of that route is accepted here as well, so an app may handle it twice`,
      'use a secret for each route; if the sender has only one, the app must check that the body is for this route',
    );
  }
  const message = `the secret is also ${earlier.title}, so who learns one of them can use it as the other`;
  return toWarning(later, message, OWN_SECRET);
}

/** Routes of one type of handshake are safe beside each other: each rejects what its own handshake could have signed. */
function signsTokensFor({ webhook: signer }: SecretUse, { webhook }: SecretUse): boolean {
  const type = signer?.handshake?.type;
  return type !== undefined && HANDSHAKES[type].signsAnyToken !== undefined && webhook?.handshake?.type !== type;
}

/** Without a key, the handshake signs nothing: if the other use is outside the routes, the route of the handshake is closed. */
function toSignedByAnyone(victim: SecretUse, signer: SecretUse): SecretConflict {
  const { type } = signer.webhook?.handshake ?? {};
  return victim.key === undefined
    ? toError(
        signer,
        `the secret is also ${victim.title}, and the handshake of ${type} signs any token with it, for anyone`,
        OTHER_SECRET,
      )
    : toError(
        victim,
        `the secret is also ${signer.title}, whose handshake (${type}) signs any token for anyone: requests that are signed so would be accepted here`,
        OTHER_SECRET,
      );
}

function toKnownToOwner(earlier: SecretUse, later: SecretUse): SecretConflict {
  const [endpoint, other] = earlier.isEndpoint === true ? [earlier, later] : [later, earlier];
  if (other.key === undefined)
    return toError(later, `the secret is also ${earlier.title}, and the owner of the endpoint knows it`, OWN_SECRET);
  // The owner may well be the operator: a receiver that sidegate protects, too.
  return toWarning(
    other,
    `the secret is also ${endpoint.title}: the owner of the endpoint could send the deliveries that it receives, and others, to this route`,
    OTHER_SECRET,
  );
}

function toError(at: SecretUse, message: string, hint: string): SecretConflict {
  return { at, problem: error(at.path, message, hint) };
}

function toWarning(at: SecretUse, message: string, hint: string): SecretConflict {
  return { at, problem: warning(at.path, message, hint) };
}

/** Whether no delivery of one is valid for the other. The same public key verifies only what has the same form. */
function isDistinct({ description: a }: WebhookConfig, { description: b }: WebhookConfig, digest: string): boolean {
  const signsTarget = [a, b].every((each) => signsUrl(each) || coversQuery(each));
  return signsTarget || (digest.startsWith(PUBLIC) && !isDeepStrictEqual(a, b));
}

function toRouteUses({ config: { name, webhook } }: CompiledRoute, read: KeysRead | undefined, index: number): SecretUse[] {
  if (webhook === undefined || read === undefined) return [];
  const path = ['routes', index, 'webhook'];
  const { handshakeToken, urlCredentials } = read.set;
  const keys = read.set.keys.map((key): SecretUse => {
    const position = webhook.keys.findIndex((each) => each.name === key.name);
    return {
      path: [...path, 'keys', position, 'secret'],
      title: `a key of route ${name}`,
      owner: path.join('.'),
      digests: toKeyDigests(key),
      webhook,
      key: { route: index, name: key.name },
    };
  });
  const others = [
    [[...path, 'handshake', 'verifyToken'], `the handshake's token of route ${name}`, handshakeToken],
    [[...path, 'urlCredentials'], `the credentials in the URL of route ${name}`, urlCredentials],
  ] as const;
  const uses = others.flatMap(([at, title, secret]) =>
    secret === undefined ? [] : [{ path: at, title, owner: at.join('.'), digests: toTextDigests(secret.expose()) }],
  );
  return [...keys, ...uses];
}

const ENCRYPTION = ['provider', 'encryption'];

/** Secrets that cannot be read are reported where they are used. */
async function readOtherUses({ listen, identity, admin, provider }: Config): Promise<SecretUse[]> {
  const sources: (readonly [path: Path, title: string, source: SecretSource | undefined, owner?: Path])[] = [
    [['identity', 'key', 'secret'], 'the key of identity', identity?.key.secret],
    [['admin', 'token', 'secret'], 'the token of the admin port', admin.token?.secret],
    [['provider', 'token', 'secret'], 'the token of the API of provider', provider?.token?.secret],
    [['provider', 'egress', 'proxy', 'password'], 'the password of the egress proxy', provider?.egress.proxy?.password],
    ...(provider?.encryption?.keys ?? []).map(
      (key, index) => [[...ENCRYPTION, 'keys', index], 'a key of provider.encryption', key, ENCRYPTION] as const,
    ),
    ...(provider?.endpoints ?? []).flatMap(({ name, url, secret, previousSecret }, index) => {
      // The sender of the route is then the gate itself.
      if (URL.canParse(url) && isReachedBy(listen.address, toProbeAddress(url))) return [];
      const at = ['provider', 'endpoints', index];
      const title = `the secret of the endpoint ${name}`;
      return [[[...at, 'secret'], title, secret, at] as const, [[...at, 'previousSecret'], title, previousSecret, at] as const];
    }),
  ];
  const uses = await Promise.all(
    sources.map(async ([path, title, source, section = path]) => {
      const read = source === undefined ? undefined : await readSecret(source);
      if (read === undefined || 'problem' in read) return [];
      const bytes = read.secret.expose();
      const owner = section.join('.');
      if (path[1] !== 'endpoints') return [{ path, title, owner, digests: toTextDigests(bytes) }];
      const parsed = parseSigningSecret(bytes.toString('latin1'));
      const digests = 'problem' in parsed ? toTextDigests(bytes) : toSigningDigests(parsed);
      return [{ path, title, owner, digests, isEndpoint: true as const }];
    }),
  );
  return uses.flat();
}

/** The text, and the bytes that it may encode: the same secret may be configured with another encoding elsewhere. */
function toTextDigests(bytes: Buffer): ReadonlySet<string> {
  const digits = bytes.toString('latin1').replace(PREFIX, '');
  const forms = [bytes, parseBase64Key(digits), parseHex(digits)];
  return new Set(forms.flatMap((form) => (form === undefined || form.length === 0 ? [] : [toDigest(form)])));
}

function toSigningDigests(secret: SigningSecret): ReadonlySet<string> {
  const digests = toTextDigests(Buffer.from(formatSigningSecret(secret)));
  if (secret.version === 'v1') return digests;
  return new Set([...digests, toPublicDigest(createPublicKey(toEd25519Key(secret.secret.expose())))]);
}

function toKeyDigests({ material }: VerifyKey): ReadonlySet<string> {
  if (!(material instanceof Material)) return new Set();
  const { key, source } = material;
  if (key.type !== 'secret') return new Set([toPublicDigest(key)]);
  return new Set([toDigest(key.export()), ...(source === undefined ? [] : toTextDigests(source.secret.expose()))]);
}

function toPublicDigest(key: KeyObject): string {
  return `${PUBLIC}${toDigest(key.export({ format: 'der', type: 'spki' }))}`;
}

function toDigest(bytes: Buffer): string {
  return hash('sha256', bytes, 'base64');
}

/** The compared verifiers: that of the gate, the minimum cryptography of any verifier, and the senders' own libraries. */
import { createHmac, createSecretKey, randomBytes, timingSafeEqual } from 'node:crypto';
import { verify as verifyGitHub } from '@octokit/webhooks-methods';
import { Webhook } from 'standardwebhooks';
import Stripe from 'stripe';
import { Webhook as SvixWebhook } from 'svix';
import { HeaderFields } from '../../src/core/headers.ts';
import { Secret } from '../../src/core/secret.ts';
import { PRESETS } from '../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../src/verify/schemes/description.ts';
import type { Scheme, VerifyKey } from '../../src/verify/schemes/scheme.ts';

/** Verifies one valid delivery; throws if it is rejected. */
export type Check = () => void | Promise<void>;

/** One preset, with its verifiers. */
export interface Contest {
  readonly preset: string;
  readonly engine: Check;
  /** HMAC over the same bytes and a comparison, by keys prepared beforehand. */
  readonly bare: Check;
  /** The sender's own library for Node, if it has one that is small enough to use here. */
  readonly library?: { readonly name: string; readonly check: Check };
}

const PUBLIC_URL = 'https://hooks.example.com/hooks/orders';
const HMACS = new Set(['hmac-sha1', 'hmac-sha256', 'hmac-sha512']);

/** Creates a delivery with a body of this size, signed for each preset that uses HMAC. */
export function createContests(bytes: number): Contest[] {
  const body = toBody(bytes);
  return PRESETS.filter(isByHmac).map((description) => toContest(description, body));
}

/** Excludes presets that need a special body: forms, and timestamps in the body. Tokens are verified by jose. */
function isByHmac({ signature, signed, timestamp, jwt }: SchemeDescription): boolean {
  const isPlain = jwt === undefined && !signed.includes('form') && !(timestamp !== undefined && 'json' in timestamp.from);
  return isPlain && signature?.forms.some(({ algorithm }) => HMACS.has(algorithm)) === true;
}

function toBody(bytes: number): Buffer {
  const event = { id: 'evt_1', type: 'order.paid', created: 1_800_000_000, data: { id: 'order_1', note: '' } };
  const length = Buffer.byteLength(JSON.stringify(event));
  event.data.note = 'x'.repeat(Math.max(bytes - length, 0));
  return Buffer.from(JSON.stringify(event));
}

function toContest(description: SchemeDescription, body: Buffer): Contest {
  const scheme = compileScheme(description);
  const text = description.secret.encoding === 'utf8' ? randomBytes(24).toString('hex') : toEncoded(description);
  const message = { method: 'POST', url: scheme.signsUrl ? PUBLIC_URL : '', body };
  const secret = new Secret(Buffer.from(text));
  const pairs = scheme.sign({ ...message, id: 'msg_1', timestamp: Date.now() }, secret, undefined);
  const library = toLibrary(description.name, { text, body, headers: Object.fromEntries(pairs) });
  return {
    preset: description.name,
    engine: toEngine(scheme, secret, pairs.flat(), message),
    bare: toBare(description, body),
    ...(library && { library }),
  };
}

function toEncoded({ secret: { encoding, prefix = '' } }: SchemeDescription): string {
  return `${prefix}${randomBytes(24).toString(encoding === 'hex' ? 'hex' : 'base64')}`;
}

/** All calls that the gates make to a scheme for a delivery. */
function toEngine(
  scheme: Scheme,
  secret: Secret,
  raw: readonly string[],
  message: { method: string; url: string; body: Buffer },
): Check {
  const parsed = scheme.parseKey('k', secret, undefined);
  if ('problem' in parsed) throw new Error(`${scheme.name}: ${parsed.problem}`);
  const keys: VerifyKey[] = [parsed.key];
  const all = ['Host', 'hooks.example.com', 'Content-Type', 'application/json', 'User-Agent', 'sender/1.0', ...raw];
  return () => {
    const head = scheme.readHead(new HeaderFields(all), { allowDotInId: false });
    if ('code' in head || scheme.verify(head, message, keys) === undefined) throw new Error(`${scheme.name} refused it`);
    if ('problem' in scheme.identify(head, message)) throw new Error(`${scheme.name} does not know it`);
  };
}

function toBare({ signature }: SchemeDescription, body: Buffer): Check {
  const algorithm = signature?.forms.find((form) => HMACS.has(form.algorithm))?.algorithm ?? '';
  const digest = algorithm.replace('hmac-', '');
  const key = createSecretKey(randomBytes(24));
  const prefix = 'msg_1.1800000000.';
  const expected = createHmac(digest, key).update(prefix, 'latin1').update(body).digest();
  return () => {
    const found = createHmac(digest, key).update(prefix, 'latin1').update(body).digest();
    if (!timingSafeEqual(found, expected)) throw new Error('not equal');
  };
}

interface Delivery {
  readonly text: string;
  readonly body: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

function toLibrary(preset: string, { text, body, headers }: Delivery): Contest['library'] {
  switch (preset) {
    case 'standard-webhooks':
    case 'svix': {
      const webhook = preset === 'svix' ? new SvixWebhook(text) : new Webhook(text);
      const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
      return { name: preset === 'svix' ? 'svix' : 'standardwebhooks', check: () => void webhook.verify(body, lower) };
    }
    case 'stripe': {
      const stripe = new Stripe('sk_test_none');
      return { name: 'stripe', check: () => void stripe.webhooks.constructEvent(body, headers['Stripe-Signature'] ?? '', text) };
    }
    case 'github':
      return {
        name: '@octokit/webhooks-methods',
        async check() {
          if (!(await verifyGitHub(text, body.toString(), headers['X-Hub-Signature-256'] ?? ''))) throw new Error('refused');
        },
      };
    default:
      return undefined;
  }
}

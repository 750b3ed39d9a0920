/** What senders name by URL, above all their certificates: fetched once, remembered while good, and never more than a few a minute. */
import { type KeyObject, X509Certificate } from 'node:crypto';
import type { Clock, EpochMilliseconds, Milliseconds } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import { type HttpsGet, RemoteFailure } from './https-get.ts';

interface Entry {
  readonly key: Promise<KeyObject>;
  /** Fetched anew from then on. */
  goodUntil: EpochMilliseconds;
}

const LARGEST_BYTES = 16_384;
const LARGEST_ANSWER = 65_536;
const TIMEOUT_MS: Milliseconds = 5_000;
const DAY_MS: Milliseconds = 86_400_000;
/** A failure is remembered for a moment, so that a flood of messages is no flood of fetches. */
const FAILURE_MS: Milliseconds = 10_000;
const MOST = 16;
const MOST_A_MINUTE = 10;
const MINUTE_MS: Milliseconds = 60_000;

/** Holds them. */
export class RemoteCertificates {
  readonly #get: HttpsGet;
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();
  #fetches: EpochMilliseconds[] = [];

  constructor(get: HttpsGet, clock: Clock) {
    this.#get = get;
    this.#clock = clock;
  }

  /** The key of the certificate at `url`, whose host the caller vouches for; rejects with RemoteFailure. */
  async key(url: URL): Promise<KeyObject> {
    const now = this.#clock.now();
    const known = this.#entries.get(url.href);
    if (known !== undefined && now < known.goodUntil) return known.key;
    this.#checkRate(now, url);
    const key = this.#fetch(url, now);
    const entry = { key: key.then(({ publicKey }) => publicKey), goodUntil: now + FAILURE_MS };
    // Told to whoever waits for it; here it only must not count as unhandled.
    entry.key.catch(() => undefined);
    if (this.#entries.size >= MOST) this.#entries.delete(this.#entries.keys().next().value as string);
    this.#entries.set(url.href, entry);
    const { validTo } = await key;
    entry.goodUntil = Math.min(now + DAY_MS, validTo);
    return entry.key;
  }

  /** Asks for a URL whose host the caller vouches for, as its sender wishes; rejects with RemoteFailure. */
  async follow(url: URL): Promise<void> {
    this.#checkRate(this.#clock.now(), url);
    await this.#get(url, { maxBytes: LARGEST_ANSWER, timeout: TIMEOUT_MS });
  }

  #checkRate(now: EpochMilliseconds, url: URL): void {
    this.#fetches = this.#fetches.filter((at) => now - at < MINUTE_MS);
    if (this.#fetches.length >= MOST_A_MINUTE) throw new RemoteFailure(`${url.host}: asked too often`);
    this.#fetches.push(now);
  }

  async #fetch(url: URL, now: EpochMilliseconds): Promise<{ publicKey: KeyObject; validTo: EpochMilliseconds }> {
    const bytes = await this.#get(url, { maxBytes: LARGEST_BYTES, timeout: TIMEOUT_MS });
    let certificate: X509Certificate;
    try {
      certificate = new X509Certificate(bytes);
    } catch (thrown) {
      throw new RemoteFailure(`${url.host}: no certificate (${toErrorText(thrown)})`);
    }
    const [from, to] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)];
    if (now < from || now >= to) throw new RemoteFailure(`${url.host}: the certificate is not valid now`);
    return { publicKey: certificate.publicKey, validTo: to };
  }
}

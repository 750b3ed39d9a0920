/** Tokens that senders offered in handshakes, kept in memory for authorized operators. The gate itself uses none of them. */
import { type Clock, type EpochMilliseconds, type Milliseconds, toInstant } from '../../core/clock.ts';
import type { Secret } from '../../core/secret.ts';

/** The oldest is removed first: a sender can offer its token again, and then an operator finds it among the latest. */
const MAX_OFFERED_TOKENS = 5;
const MAX_AGE_MS: Milliseconds = 3_600_000;

/** One token, as an authorized operator sees it. */
interface OfferedToken {
  readonly route: string;
  readonly at: string;
  /** Address of the client that sent it. */
  readonly client: string;
  readonly token: string;
}

interface Offer {
  readonly receivedAt: EpochMilliseconds;
  readonly client: string;
  readonly token: Secret;
}

/** The tokens of a process, at most `MAX_OFFERED_TOKENS` for each route. */
export class OfferedTokens {
  readonly #clock: Clock;
  readonly #offers = new Map<string, readonly Offer[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Keeps a token for an hour. The same token is kept once. */
  add(route: string, token: Secret, client: string, receivedAt: EpochMilliseconds = this.#clock.now()): void {
    this.forgetOld();
    const others = (this.#offers.get(route) ?? []).filter((offer) => !offer.token.expose().equals(token.expose()));
    const offer = { receivedAt, client, token };
    this.#offers.set(route, [offer, ...others].slice(0, MAX_OFFERED_TOKENS));
  }

  /** Removes all tokens, which those of another thread are to keep, and returns them with the oldest of each route first. */
  takeAll(): (Offer & { readonly route: string })[] {
    const taken = [...this.#offers].flatMap(([route, offers]) => offers.map((offer) => ({ route, ...offer })).reverse());
    this.#offers.clear();
    return taken;
  }

  /** The latest of each route first. */
  list(): OfferedToken[] {
    this.forgetOld();
    return [...this.#offers].flatMap(([route, offers]) =>
      offers.map(({ receivedAt, client, token }) => {
        return { route, at: toInstant(receivedAt), client, token: token.expose().toString('utf8') };
      }),
    );
  }

  /** Deletes all and returns how many there were. */
  clear(): number {
    const { length } = this.list();
    this.#offers.clear();
    return length;
  }

  /** Deletes tokens that are too old; called every second, because nobody may ask for them. */
  forgetOld(): void {
    const oldest = this.#clock.now() - MAX_AGE_MS;
    for (const [route, offers] of this.#offers) {
      const kept = offers.filter(({ receivedAt }) => receivedAt >= oldest);
      if (kept.length === 0) this.#offers.delete(route);
      else if (kept.length < offers.length) this.#offers.set(route, kept);
    }
  }
}

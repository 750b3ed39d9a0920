/** The users of a realm at one moment, with what a refusal has to cost. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { CheckedHash } from './hash-pool.ts';
import type { Bytes, PasswordHash } from './password-hash.ts';
import type { UserEntry } from './users.ts';

/** The entries of one source. */
export interface UserSource {
  /** Shown in logs and metrics. */
  readonly name: string;
  /** From then on none of its passwords are taken. */
  readonly notAfter: EpochMilliseconds | undefined;
  readonly entries: readonly UserEntry[];
}

/** One password that a user may have. */
export interface LivePassword {
  readonly hash: PasswordHash;
  readonly source: string;
  readonly notAfter: EpochMilliseconds | undefined;
}

/** How often a kind of hash is checked for the user who has most of it, and a hash of it to check in vain. */
interface Share {
  readonly count: number;
  readonly sample: CheckedHash;
}

/**
 * Finds a user's passwords. A refusal costs the same whoever it is for: what a user's own hashes do not cost is spent on
 * decoys, up to the most that any user costs, kind by kind. So an unknown user cannot be told from a known one, nor an old
 * hash from a new one.
 */
export class UserSet {
  readonly #passwords = new Map<string, LivePassword[]>();
  readonly #most = new Map<string, Share>();
  #largestHash: Bytes = 0;

  constructor(sources: readonly UserSource[]) {
    for (const { name, notAfter, entries } of sources) {
      for (const { user, hash } of entries) {
        const passwords = this.#passwords.get(user) ?? [];
        passwords.push({ hash, source: name, notAfter });
        this.#largestHash = Math.max(this.#largestHash, hash.memory);
        this.#passwords.set(user, passwords);
      }
    }
    for (const passwords of this.#passwords.values()) {
      for (const [kind, share] of countKinds(passwords)) {
        if (share.count > (this.#most.get(kind)?.count ?? 0)) this.#most.set(kind, share);
      }
    }
  }

  /** How many users there are. */
  get size(): number {
    return this.#passwords.size;
  }

  /** The most memory that checking any of the hashes takes. */
  get largestHash(): Bytes {
    return this.#largestHash;
  }

  /** The passwords that are good at `now`; none for an unknown user. */
  find(user: string, now: EpochMilliseconds): readonly LivePassword[] {
    const passwords = this.#passwords.get(user) ?? [];
    return passwords.filter(({ notAfter }) => notAfter === undefined || now < notAfter);
  }

  /** What is to be checked in vain beside a user's own hashes. */
  toDecoys(passwords: readonly LivePassword[]): readonly CheckedHash[] {
    const own = countKinds(passwords);
    return [...this.#most].flatMap(([kind, { count, sample }]) =>
      Array.from({ length: count - (own.get(kind)?.count ?? 0) }, () => sample),
    );
  }
}

function countKinds(passwords: readonly LivePassword[]): Map<string, Share> {
  const shares = new Map<string, Share>();
  for (const { hash } of passwords) {
    const count = (shares.get(hash.kind)?.count ?? 0) + 1;
    shares.set(hash.kind, { count, sample: { algorithm: hash.algorithm, text: hash.text } });
  }
  return shares;
}

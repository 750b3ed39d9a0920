/** The users of a realm at one moment, and the cost of a rejection. */

import type { Bytes } from '../core/bytes.ts';
import type { EpochMilliseconds } from '../core/clock.ts';
import type { CheckedHash } from './hash-pool.ts';
import type { PasswordHash } from './password-hash.ts';
import type { UserEntry } from './users.ts';

/** The entries of one source. */
export interface UserSource {
  /** Name in logs and metrics. */
  readonly name: string;
  /** All its passwords are rejected from then on. */
  readonly notAfter: EpochMilliseconds | undefined;
  readonly entries: readonly UserEntry[];
}

/** A password of a user. */
export interface LivePassword {
  readonly hash: PasswordHash;
  readonly source: string;
  readonly notAfter: EpochMilliseconds | undefined;
}

/** The maximum number of hashes of a kind that one user has, and a hash of that kind to use as a decoy. */
interface Share {
  readonly count: number;
  readonly sample: CheckedHash;
}

/**
 * Finds a user's passwords. A rejection takes the same time for every user name: decoys make up the difference between a user's
 * hashes and the maximum of any user, for each kind. So the time does not reveal whether a user exists or which kind of hash it has.
 */
export class UserSet {
  readonly #passwords = new Map<string, LivePassword[]>();
  readonly #max = new Map<string, Share>();
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
        if (share.count > (this.#max.get(kind)?.count ?? 0)) this.#max.set(kind, share);
      }
    }
  }

  /** Number of users. */
  get size(): number {
    return this.#passwords.size;
  }

  /** Maximum memory for checking one of the hashes. */
  get largestHash(): Bytes {
    return this.#largestHash;
  }

  /** The passwords that are valid at `now`; none for an unknown user. */
  find(user: string, now: EpochMilliseconds): readonly LivePassword[] {
    const passwords = this.#passwords.get(user) ?? [];
    return passwords.filter(({ notAfter }) => notAfter === undefined || now < notAfter);
  }

  /** The decoys to check in addition to a user's hashes. */
  toDecoys(passwords: readonly LivePassword[]): readonly CheckedHash[] {
    const own = countKinds(passwords);
    return [...this.#max].flatMap(([kind, { count, sample }]) =>
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

/** Joins the grants that several gates gave one event, so that its claims are settled together, and once. */
import type { Claim, ClaimGrant } from '../../core/event.ts';

/** The grant of an event for which nothing is stored. */
export const NOTHING_CLAIMED: ClaimGrant = {
  claim: undefined,
  isStale: false,
  isUnchecked: false,
  expiresAt: Number.POSITIVE_INFINITY,
};

/** Combines two grants. */
export function joinGrants(earlier: ClaimGrant, later: ClaimGrant): ClaimGrant {
  if (earlier === NOTHING_CLAIMED) return later;
  return {
    claim: joinClaims(earlier.claim, later.claim),
    isStale: earlier.isStale || later.isStale,
    isUnchecked: earlier.isUnchecked || later.isUnchecked,
    expiresAt: Math.min(earlier.expiresAt, later.expiresAt),
  };
}

/** Settles both, the later one first. */
function joinClaims(earlier: Claim | undefined, later: Claim | undefined): Claim | undefined {
  if (earlier === undefined || later === undefined) return later ?? earlier;
  const both = (settle: keyof Claim) => (): void => {
    later[settle]();
    earlier[settle]();
  };
  return { confirm: both('confirm'), release: both('release'), hold: both('hold') };
}

/** Settles a claim once: the first settlement counts. */
export class OneTimeClaim implements Claim {
  #claim: Claim | undefined;

  constructor(claim: Claim) {
    this.#claim = claim;
  }

  confirm(): void {
    this.#take()?.confirm();
  }

  release(): void {
    this.#take()?.release();
  }

  hold(): void {
    this.#take()?.hold();
  }

  #take(): Claim | undefined {
    const claim = this.#claim;
    this.#claim = undefined;
    return claim;
  }
}

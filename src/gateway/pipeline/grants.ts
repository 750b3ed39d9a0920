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
  return toClaim((how) => {
    later[how]();
    earlier[how]();
  });
}

/** Settles a claim once: the first settlement counts. */
export function toOneTimeClaim(claim: Claim): Claim {
  let open: Claim | undefined = claim;
  return toClaim((how) => {
    const settled = open;
    open = undefined;
    settled?.[how]();
  });
}

function toClaim(settle: (how: keyof Claim) => void): Claim {
  return { confirm: () => settle('confirm'), release: () => settle('release'), hold: () => settle('hold') };
}

/** Joins what several gates grant one event: its claims are settled as one, however many gates claimed something for it. */
import type { Claim, ClaimGrant } from '../../core/event.ts';

/** For an event of which nothing is to be remembered. */
export const NOTHING_CLAIMED: ClaimGrant = { claim: undefined, isStale: false, isUnchecked: false };

/** Both grants in one. */
export function joinGrants(earlier: ClaimGrant, later: ClaimGrant): ClaimGrant {
  if (earlier === NOTHING_CLAIMED) return later;
  return {
    claim: joinClaims(earlier.claim, later.claim),
    isStale: earlier.isStale || later.isStale,
    isUnchecked: earlier.isUnchecked || later.isUnchecked,
  };
}

/** Settles both, the later one first. */
function joinClaims(earlier: Claim | undefined, later: Claim | undefined): Claim | undefined {
  if (earlier === undefined || later === undefined) return later ?? earlier;
  const both = (how: keyof Claim) => (): void => {
    later[how]();
    earlier[how]();
  };
  return { confirm: both('confirm'), release: both('release'), hold: both('hold') };
}

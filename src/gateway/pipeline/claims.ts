/** One claim made of two: what an exchange holds is settled as one, however many gates claimed something for it. */
import type { Claim } from '../../core/exchange.ts';

/** Settles both, the later one first. */
export function joinClaims(earlier: Claim | undefined, later: Claim): Claim {
  if (earlier === undefined) return later;
  const both = (how: keyof Claim) => (): void => {
    later[how]();
    earlier[how]();
  };
  return { confirm: both('confirm'), release: both('release'), hold: both('hold') };
}

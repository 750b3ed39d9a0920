/** Every sender's independent truth, for differential tests; the ones in other languages are in oracles/foreign.ts, that of AWS SNS in oracles/sns.ts. */
import { commerceOracles } from './oracles/commerce.ts';
import { documentedOracles } from './oracles/documented.ts';
import type { Oracle } from './oracles/oracle.ts';
import { hubOracles, sanityOracle, standardOracles, stripeOracle, twilioOracles, workosOracle } from './oracles/signing.ts';
import { toolOracles } from './oracles/tools.ts';
import { twitchOracle } from './oracles/twitch.ts';
import {
  discordOracle,
  linearOracle,
  lineOracle,
  paddleOracle,
  sendgridOracle,
  shopifyOracles,
  slackOracle,
  webflowOracle,
  zoomOracle,
} from './oracles/verifying.ts';

/** One for each preset, and for each form of it. */
export const oracles: readonly Oracle[] = [
  ...standardOracles,
  ...hubOracles,
  stripeOracle,
  slackOracle,
  ...shopifyOracles,
  ...twilioOracles,
  linearOracle,
  zoomOracle,
  discordOracle,
  paddleOracle,
  sendgridOracle,
  twitchOracle,
  lineOracle,
  workosOracle,
  sanityOracle,
  webflowOracle,
  ...documentedOracles,
  ...commerceOracles,
  ...toolOracles,
];

/** How a test's title names it. */
export function toTitle({ preset, form, signedBy, verifiedBy }: Oracle): string {
  return `${preset}${form === undefined ? '' : ` (${form})`}: ${signedBy}${verifiedBy === undefined ? '' : ` → ${verifiedBy}`}`;
}

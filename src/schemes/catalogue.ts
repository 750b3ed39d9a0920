/** Every preset by the name it has in the config. */
import type { SchemeDescription } from './description.ts';
import { awsSns } from './presets/aws-sns.ts';
import { github } from './presets/github.ts';
import { microsoftGraph } from './presets/microsoft-graph.ts';
import { standardWebhooks, svix } from './presets/standard-webhooks.ts';
import { apiKey, bearer, unsigned } from './presets/unsigned.ts';

/** The presets there are; the config admits no other name but `custom`. */
export const PRESETS: readonly SchemeDescription[] = [
  standardWebhooks,
  svix,
  github,
  bearer,
  apiKey,
  unsigned,
  awsSns,
  microsoftGraph,
];

/** The preset of a name. */
export function findPreset(name: string): SchemeDescription | undefined {
  return PRESETS.find((preset) => preset.name === name);
}

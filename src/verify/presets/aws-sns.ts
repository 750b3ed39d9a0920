/** Amazon SNS: https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html. The signature is checked in verify/schemes/aws-sns.ts. */
import type { SchemeDescription } from '../schemes/description.ts';
import { minutes } from './defaults.ts';

/** A retry has the timestamp of the first attempt, and arrives within an hour. */
export const awsSns: SchemeDescription = {
  name: 'aws-sns',
  from: {
    title: 'Amazon SNS',
    docs: 'https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html',
    key: 'none: messages name a certificate on an Amazon host',
  },
  isSignedInContent: true,
  signed: [],
  separator: '',
  timestamp: { from: { json: '$.Timestamp' }, unit: 'rfc3339' },
  id: { json: '$.MessageId' },
  secret: { encoding: 'utf8' },
  tolerance: minutes(65, 5),
  contentTypes: ['text/plain', 'application/json'],
};

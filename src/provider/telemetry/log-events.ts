/** The events that the sending side logs. */

export type ProviderLogEvent =
  | 'breaker_closed'
  | 'breaker_opened'
  | 'endpoint_changed'
  | 'endpoint_disabled'
  | 'endpoint_unreadable'
  | 'message_exhausted'
  | 'operational_event_lost'
  | 'provider_failed'
  | 'queue_down'
  | 'queue_failed'
  | 'queue_up'
  | 'queue_warning';

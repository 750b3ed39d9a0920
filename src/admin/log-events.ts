/** The events that the admin port logs. */

export type AdminLogEvent = 'id_forgotten' | 'ban_lifted';

"""What programs write in place of a message: for a picture, a call, a message that was deleted."""
# ruff: noqa: RUF001 - letters of other scripts look like Latin ones.

from __future__ import annotations

import re

_DELETED = (
    r"(?:you deleted )?this message(?: was deleted)?(?: (?:as|by) admin(?: .{1,60})?)?"
    r"|se eliminó este mensaje|este mensaje fue eliminado"
    r"|eliminaste este mensaje|(?:esta )?mensagem (?:foi )?apagada|você apagou esta mensagem"
    r"|diese nachricht wurde gelöscht|du hast diese nachricht gelöscht"
    r"|ce message a été supprimé|vous avez supprimé ce message"
    r"|questo messaggio è stato eliminato|hai eliminato questo messaggio"
    r"|dit bericht is verwijderd|u hebt dit bericht verwijderd"
    r"|данное сообщение удалено|вы удалили данное сообщение"
    r"|此(?:消息|訊息)已[删刪]除|你(?:[删刪]除了这条消息|已刪除此訊息)"
    r"|このメッセージは削除されました|メッセージを削除しました"
    r"|이 메시지는 삭제되었습니다|삭제된 메시지입니다"
    r"|bu mesaj silindi|bu mesajı sildiniz|ta wiadomość została usunięta|usunięto tę wiadomość"
    r"|تم حذف هذه الرسالة|لقد حذفت هذه الرسالة|यह मैसेज मिटाया गया|आपने यह मैसेज मिटाया"
    r"|pesan ini (?:telah )?dihapus|anda menghapus pesan ini"
    r"|detta meddelande (?:raderades|togs bort)|du raderade detta meddelande"
    r"|denne besked blev slettet|denne meldingen ble slettet|tämä viesti poistettiin"
    r"|tato zpráva byla odstraněna|acest mesaj a fost șters|ezt az üzenetet törölték"
    r"|це повідомлення видалено|αυτό το μήνυμα διαγράφηκε|הודעה זו נמחקה|tin nhắn này đã bị xóa"
)
_CALL = (
    r"(?:(?:missed |silenced )?(?:group )?(?:voice|video) call|(?:sprach|video)anruf"
    r"|llamada(?: de voz)?|videollamada|chamada de (?:voz|v[íi]deo)|appel (?:vocal|vidéo)"
    r"|chiamata vocale|videochiamata|(?:语音|視訊|视频|語音)通[话話])"
)
_NOTICE = re.compile(
    rf"<[^<>]{{2,60}}>|(?:\[[^\[\]]{{1,8}}\])+|null|{_DELETED}"
    # A file, with words such as `file attached` behind its name, or with its folder.
    r"|\S.{0,99}\.(?=\w*[^\W\d])\w{2,5} \([^\W\d][^()\n]{3,40}\)"
    r"|(?:[~/]\S.*|attachments(?:/.*)?)/[^\n/]+\.\w{2,5}"
    r"|[^.!?]{1,20} (?:omitted|weggelassen|omitido|omessa?|omise?)"
    r"|missed (?:group )?(?:voice|video) call|waiting for this message\. this may take a while"
    # How long it took, or that nobody took it; LINE writes a telephone before it.
    rf"|{_CALL}[,.] (?:\d+ [^\W\d]{{1,4}}\.?(?: \d+ [^\W\d]{{1,4}})?|no answer"
    r"|(?:tap|click) to .{1,20})"
    r"|☎\s?[^\W\d][^\d.!?\n]{1,29}(?:\d+(?::\d\d)+)?"
    r"|사진(?: \d+장)?|동영상|이모티콘|파일: .+"
    r"|.{1,60} (?:started|missed) an? (?:audio|video) (?:call|chat)"
    r"|reacted \S{1,9} to your message ?|liked a message|.{1,60} sent an attachment",
    re.IGNORECASE,
)


def is_notice(text: str) -> bool:
    """Returns whether a text stands for a message that is none.

    >>> is_notice("<Media omitted>"), is_notice("IMG-1.jpg (file attached)"), is_notice("ok.")
    (True, True, False)
    """
    return _NOTICE.fullmatch(text.rstrip(".")) is not None
